package tenure_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// desk is a backend that does as the test says. Unless told otherwise it gives a lease to everybody who asks.
type desk struct {
	mu     sync.Mutex
	asked  []distributed.Request
	now    int // Enters under way
	most   int
	script []answer
	fence  uint64
	papers []*paper
	slips  []*slip
}

// answer is one answer to Enter.
type answer func(d *desk, ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error)

func (d *desk) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	d.mu.Lock()
	d.asked = append(d.asked, req)
	d.now++
	d.most = max(d.most, d.now)
	next := grants
	if len(d.script) > 0 {
		next, d.script = d.script[0], d.script[1:]
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.now--
	}()
	return next(d, ctx, req)
}

func (d *desk) Ping(context.Context) error { return nil }
func (d *desk) Close() error               { return nil }

// will sets the next answers.
func (d *desk) will(script ...answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script = script
}

// enters returns the Enters so far, of which the last is of most interest.
func (d *desk) enters() (n int, last distributed.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked), d.asked[len(d.asked)-1]
}

// together is the greatest number of Enters that were under way at a time.
func (d *desk) together() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// paper is the lease number i; slip the place number i.
func (d *desk) paper(i int) *paper {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.papers[i]
}

func (d *desk) slip(i int) *slip {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slips[i]
}

func (d *desk) grant() *paper {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &paper{desk: d, until: time.Now().Add(ttl), fences: 1000, lost: make(chan struct{})}
	d.papers = append(d.papers, p)
	return p
}

func grants(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	return d.grant(), nil, nil
}

func queues(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &slip{granted: make(chan distributed.Lease, 1)}
	d.slips = append(d.slips, s)
	return nil, s, nil
}

// fails answers with err.
func fails(err error) answer {
	return func(*desk, context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
		return nil, nil, err
	}
}

// hangs does not answer before ctx ends.
func hangs(_ *desk, ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	<-ctx.Done()
	return nil, nil, errors.Join(distributed.ErrUnavailable, ctx.Err())
}

// after gives the answer when c is closed.
func after(c <-chan struct{}, a answer) answer {
	return func(d *desk, ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
		<-c
		return a(d, ctx, req)
	}
}

// paper is a lease that is as the test sets it.
type paper struct {
	desk *desk
	lost chan struct{}

	// guarded by desk.mu
	until     time.Time
	sick      bool
	wanted    bool
	fences    int // left
	refill    func(ctx context.Context) error
	abandoned bool
	watcher   distributed.Watcher
	released  int // how often a release was begun
	answer    error
	answering <-chan struct{} // the release is not answered before this is closed; nil: at once
	watching  func()          // called when Watch begins; nil: not
}

// set changes the paper.
func (p *paper) set(change func(*paper)) {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	change(p)
}

// get looks at the paper.
func get[V any](p *paper, look func(*paper) V) V {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	return look(p)
}

func (p *paper) releases() int { return get(p, func(p *paper) int { return p.released }) }
func (p *paper) left() bool    { return get(p, func(p *paper) bool { return p.abandoned }) }

func (p *paper) NextFence() (uint64, bool) {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	if p.fences == 0 {
		return 0, false
	}
	p.fences--
	p.desk.fence++
	return p.desk.fence, true
}

func (p *paper) Refill(ctx context.Context) error {
	return get(p, func(p *paper) func(context.Context) error { return p.refill })(ctx)
}

func (p *paper) Until() time.Time      { return get(p, func(p *paper) time.Time { return p.until }) }
func (p *paper) Healthy() bool         { return get(p, func(p *paper) bool { return !p.sick }) }
func (p *paper) Contended() bool       { return get(p, func(p *paper) bool { return p.wanted }) }
func (p *paper) Abandon()              { p.set(func(p *paper) { p.abandoned = true }) }
func (p *paper) Lost() <-chan struct{} { return p.lost }

func (p *paper) Watch(w distributed.Watcher, _ distributed.Lease) {
	if watching := get(p, func(p *paper) func() { return p.watching }); watching != nil {
		watching()
	}
	p.set(func(p *paper) { p.watcher = w })
}

func (p *paper) watched() distributed.Watcher {
	return get(p, func(p *paper) distributed.Watcher { return p.watcher })
}

// lose and want are news of the lease.
func (p *paper) lose() {
	close(p.lost)
	p.watched().LeaseLost(p)
}

func (p *paper) want() {
	p.set(func(p *paper) { p.wanted = true })
	p.watched().LeaseContended(p)
}

func (p *paper) Release(ctx context.Context) error {
	answering := get(p, func(p *paper) <-chan struct{} { p.released++; return p.answering })
	if answering != nil {
		select {
		case <-answering:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return get(p, func(p *paper) error { return p.answer })
}

func (p *paper) At(now time.Time) (time.Duration, bool) {
	return distributed.Left(now, p.Until()), p.Healthy()
}

func (p *paper) StartRelease() bool {
	if get(p, func(p *paper) bool { return p.answering == nil }) {
		p.watched().LeaseReleased(p, p.Release(context.Background()))
		return false
	}
	go func() { p.watched().LeaseReleased(p, p.Release(context.Background())) }()
	return false
}

// slip is a place.
type slip struct {
	granted chan distributed.Lease

	mu        sync.Mutex
	leaves    int
	answer    error
	answering <-chan struct{} // Leave is not answered before this is closed; nil: at once
}

func (s *slip) Granted() <-chan distributed.Lease { return s.granted }

func (s *slip) Leave(ctx context.Context) error {
	s.mu.Lock()
	s.leaves++
	answering, answer := s.answering, s.answer
	s.mu.Unlock()
	if answering != nil {
		select {
		case <-answering:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return answer
}

func (s *slip) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaves
}
