package memlock

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
)

// wrong is a Backend with one flaw, to check that the suite finds it. What a flaw leaves nil is correct.
type wrong struct {
	*Backend
	flaw
}

type flaw struct {
	caught string // the case that must find it

	ask        func(*distributed.Request) // changes the request
	askWrapped func(*distributed.Request) // the same, with Prev as it came
	enter      func(context.Context, *Backend, distributed.Request) (distributed.Lease, distributed.Place, error)
	entered    func(*lease) // changes a lease that Enter has granted
	queued     func(*place) // changes a place that Enter has returned
	release    func(*lease) error
	fence      func(*lease) (uint64, bool)
	contended  func(*lease) bool
	lost       func(*lease) <-chan struct{}
	leave      func(*place) error
	downgrade  func(*lease) error
	close      func(*Backend) error
	found      func(*distributed.Inspection) // changes what was found
	breaks     func(*Backend, distributed.Inspection) distributed.Inspection
	detach     func(b *Backend, l *lease, id string, lasts time.Duration) error
	adopt      func(b *Backend, req distributed.Request, id string) (distributed.Lease, error)
	adopted    func(*lease) // changes a lease that Adopt has returned
	discard    func(b *Backend, req distributed.Request, id string) error
	record     func(*distributed.Run) // changes a run
}

func (w *wrong) Record(ctx context.Context, r distributed.Run) error {
	if w.record != nil {
		w.record(&r)
	}
	return w.Backend.Record(ctx, r)
}

func (w *wrong) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	enter := w.enter
	if enter == nil {
		enter = asAsked
	}
	if w.askWrapped != nil {
		w.askWrapped(&req)
	}
	if l, ok := distributed.As[*wrongLease](req.Prev); ok {
		req.Prev = l.inner
	}
	if w.ask != nil {
		w.ask(&req)
	}
	l, p, err := enter(ctx, w.Backend, req)
	if l, ok := l.(*lease); ok {
		if w.entered != nil {
			w.entered(l)
		}
		return &wrongLease{Lease: l, inner: l, flaw: &w.flaw}, nil, err
	}
	if p, ok := p.(*place); ok {
		if w.queued != nil {
			w.queued(p)
		}
		return nil, &wrongPlace{place: p, flaw: &w.flaw}, err
	}
	return l, p, err
}

func asAsked(ctx context.Context, b *Backend, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.Enter(ctx, req)
}

// or calls what is wrong, or else what is right.
func or[T, R any](wrong, right func(T) R, of T) R {
	if wrong != nil {
		return wrong(of)
	}
	return right(of)
}

func (w *wrong) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	i, err := w.Backend.Inspect(ctx, key)
	if w.found != nil {
		w.found(&i)
	}
	return i, err
}

func (w *wrong) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	page, next, err := w.Backend.List(ctx, prefix, cursor, limit)
	if w.found != nil && len(page) > 0 {
		w.found(&page[0])
	}
	return page, next, err
}

func (w *wrong) Break(ctx context.Context, i distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	if w.breaks != nil {
		i = w.breaks(w.Backend, i)
	}
	return w.Backend.Break(ctx, i, by, reason)
}

func (w *wrong) Detach(ctx context.Context, of distributed.Lease, id string, lasts time.Duration) error {
	l, ok := distributed.As[*lease](of)
	if wrapped, is := of.(*wrongLease); is {
		l, ok = wrapped.inner, true
	}
	if w.detach == nil || !ok {
		return w.Backend.Detach(ctx, l, id, lasts)
	}
	return w.detach(w.Backend, l, id, lasts)
}

func (w *wrong) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	if w.adopt != nil {
		return w.adopt(w.Backend, req, id)
	}
	l, err := w.Backend.Adopt(ctx, req, id)
	if l, ok := l.(*lease); ok && w.adopted != nil {
		w.adopted(l)
	}
	return l, err
}

func (w *wrong) Discard(ctx context.Context, req distributed.Request, id string) error {
	if w.discard != nil {
		return w.discard(w.Backend, req, id)
	}
	return w.Backend.Discard(ctx, req, id)
}

func (w *wrong) Close() error { return or(w.close, (*Backend).Close, w.Backend) }

// wrongLease is a lease that Enter granted. Those that places deliver are correct.
type wrongLease struct {
	distributed.Lease
	inner *lease
	*flaw
}

func (l *wrongLease) Release(ctx context.Context) error {
	return or(l.release, func(l *lease) error { return l.Release(ctx) }, l.inner)
}

func (l *wrongLease) Downgrade(ctx context.Context) error {
	return or(l.downgrade, func(l *lease) error { return l.Downgrade(ctx) }, l.inner)
}

func (l *wrongLease) NextFence() (uint64, bool) {
	if l.fence != nil {
		return l.fence(l.inner)
	}
	return l.Lease.NextFence()
}

func (l *wrongLease) Contended() bool       { return or(l.contended, (*lease).Contended, l.inner) }
func (l *wrongLease) Lost() <-chan struct{} { return or(l.lost, (*lease).Lost, l.inner) }

type wrongPlace struct {
	*place
	*flaw
}

func (p *wrongPlace) Leave(ctx context.Context) error {
	return or(p.leave, func(p *place) error { return p.Leave(ctx) }, p.place)
}

func fixture(f flaw) locktest.Fixture {
	return locktest.Fixture{Bubble: true, Open: func(locktest.TB) locktest.Service {
		w := &wrong{Backend: New(), flaw: f}
		return locktest.Service{Backend: w, Expire: w.Expire, Cut: w.Partition, Forget: func(string) {}}
	}}
}

// The wrapper without a flaw passes the suite.
func TestWrongWithoutFlaw(t *testing.T) {
	locktest.Run(t, fixture(flaw{}))
}

func TestFlawsAreFound(t *testing.T) {
	cases := make(map[string]locktest.Case)
	for _, c := range locktest.Cases() {
		cases[c.Name] = c
	}
	all := maps.Clone(flaws)
	maps.Copy(all, inspectFlaws)
	maps.Copy(all, permitFlaws)
	maps.Copy(all, transferFlaws)
	for name, f := range all {
		t.Run(name, func(t *testing.T) {
			c, ok := cases[f.caught]
			if !ok {
				t.Fatalf("no case is named %q", f.caught)
			}
			synctest.Test(t, func(t *testing.T) {
				failures := c.Failures(fixture(f))
				if len(failures) == 0 {
					t.Errorf("not found by %q", f.caught)
				}
				t.Log(failures)
			})
		})
	}
}
