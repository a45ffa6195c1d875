package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

var transferCases = []Case{
	{"a detached lease keeps the lock until it is adopted", func(e *env, key string) {
		a, b := e.member(), e.member()
		l := a.lease(key)
		last := e.fence(l)
		places := e.queue(key, 2)
		id := a.detach(l, long)
		e.waiting(places...)
		e.release(l) // does nothing
		e.member().refused(key)
		next, err := b.adopt(key, id)
		if err != nil {
			e.Fatalf("Adopt: %v", err)
		}
		e.waiting(places...)
		e.above(last, e.fence(next))
		e.stale(l, e.fence(next))
		e.held(key, next)
		e.passOn(next, places...)
	}},
	{"a detached lease is adopted once", func(e *env, key string) {
		a := e.member()
		id := a.detach(a.lease(key), long)
		var mu sync.Mutex
		var got []distributed.Lease
		var adopters sync.WaitGroup
		for range 8 {
			m := e.member()
			adopters.Go(func() {
				l, err := m.adopt(key, id)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					got = append(got, l)
				} else if !errors.Is(err, distributed.ErrLeaseLost) {
					e.Errorf("Adopt: %v; want ErrLeaseLost, or a lease", err)
				}
			})
		}
		adopters.Wait()
		if len(got) != 1 {
			e.Fatalf("%d of 8 have adopted the lease; want 1", len(got))
		}
		e.held(key, got[0])
		e.release(got[0])
	}},
	{"an adopted lease is detached and adopted again", func(e *env, key string) {
		a, b := e.member(), e.member()
		l := a.lease(key)
		p := e.member().place(key)
		last := e.fence(l)
		for range 4 {
			id, err := a.detach(l, long), error(nil)
			if l, err = b.adopt(key, id); err != nil {
				e.Fatalf("Adopt: %v", err)
			}
			last = e.above(last, e.fence(l))
			a, b = b, a
		}
		e.passOn(l, p)
	}},
	{"a detached lease outlasts the TTL of its instance", func(e *env, key string) {
		a, b := e.member(), e.member()
		id := a.detach(a.lease(key, lasting(e.ttl)), long)
		time.Sleep(e.ttl * 5 / 4)
		e.member().refused(key)
		l, err := b.adopt(key, id, lasting(e.ttl))
		if err != nil {
			e.Fatalf("Adopt: %v", err)
		}
		time.Sleep(e.ttl * 5 / 4)
		e.held(key, l) // it is renewed
		e.release(l)
	}},
	{"a detached lease that nobody adopts expires", func(e *env, key string) {
		a := e.member()
		l := a.lease(key)
		p := e.member().place(key)
		start := time.Now()
		id := a.detach(l, e.ttl)
		next := e.granted(p)
		if took := time.Since(start); took < e.ttl*9/10 {
			e.Errorf("the lock was free after %v; want it taken for %v", took, e.ttl)
		}
		if _, err := a.adopt(key, id); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Adopt of a detached lease that has expired: %v; want ErrLeaseLost", err)
		}
		e.held(key, next)
		e.release(next)
	}},
	{"a detached lease is discarded", func(e *env, key string) {
		a, b := e.member(), e.member()
		l := a.lease(key)
		p := e.member().place(key)
		id := a.detach(l, long)
		if err := b.discard(key, id); err != nil {
			e.Fatalf("Discard: %v", err)
		}
		next := e.granted(p)
		if err := a.discard(key, id); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Discard again: %v; want ErrLeaseLost", err)
		}
		if _, err := b.adopt(key, id); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Adopt of a discarded lease: %v; want ErrLeaseLost", err)
		}
		e.held(key, next)
		e.release(next)
	}},
	{"an unknown id adopts and discards nothing", func(e *env, key string) {
		e.member().detachable()
		for range 2 {
			if _, err := e.member().adopt(key, rand.Text()); !errors.Is(err, distributed.ErrLeaseLost) {
				e.Errorf("Adopt of an unknown id: %v; want ErrLeaseLost", err)
			}
			if err := e.member().discard(key, rand.Text()); !errors.Is(err, distributed.ErrLeaseLost) {
				e.Errorf("Discard of an unknown id: %v; want ErrLeaseLost", err)
			}
		}
		a := e.member()
		id := a.detach(a.lease(key), long)
		if _, err := e.member().adopt(key, rand.Text()); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Adopt of another's id: %v; want ErrLeaseLost", err)
		}
		e.member().refused(key)
		if err := a.discard(key, id); err != nil {
			e.Errorf("Discard: %v", err)
		}
	}},
	{"a lease that is lost cannot be detached", func(e *env, key string) {
		m := e.member()
		m.detachable()
		l, _ := m.brief(key)
		e.letExpire(l)
		if err := m.tryDetach(l, rand.Text(), long); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Detach of a lost lease: %v; want ErrLeaseLost", err)
		}
		e.free(key)
	}},
	{"what cannot be detached stays held", func(e *env, key string) {
		m := e.member()
		m.detachable()
		l := m.lease(key)
		for _, bad := range []error{m.tryDetach(l, "short", long), m.tryDetach(l, rand.Text()+"\n", long), m.tryDetach(l, rand.Text(), time.Millisecond)} {
			if bad == nil || errors.Is(bad, distributed.ErrLeaseLost) || errors.Is(bad, distributed.ErrUnavailable) {
				e.Errorf("Detach with a wrong argument: %v; want an error that says so", bad)
			}
		}
		e.held(key, l)
		e.release(l)
		s := m.lease(key, shared)
		if err := m.tryDetach(s, rand.Text(), long); err == nil {
			e.Errorf("Detach of a shared lease succeeded")
		}
		e.held(key, s)
		e.release(s)
		if l, err := m.adopt(key, rand.Text(), shared); err == nil {
			e.Errorf("Adopt of a shared lease succeeded: %v", l)
		}
	}},
	{"inspect shows a detached lease, and break ends it", func(e *env, key string) {
		e.inspector()
		a := e.member()
		l := a.lease(key)
		last := e.fence(l)
		p := e.member().place(key)
		id := a.detach(l, long)
		found := e.inspect(key)
		if len(found.Holders) != 1 || !found.Holders[0].Detached() || found.Holders[0].Instance != distributed.DetachedName(id) {
			e.Fatalf("Inspect found %+v; want the holder %q", found, distributed.DetachedName(id))
		}
		if h := found.Holders[0]; h.Left < 0 || h.Left > long {
			e.Errorf("the detached lease lasts for %v; want up to %v, or 0, not known", h.Left, long)
		}
		e.broken(found)
		next := e.granted(p)
		e.above(last, e.fence(next))
		if _, err := a.adopt(key, id); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Adopt of a broken lease: %v; want ErrLeaseLost", err)
		}
		e.held(key, next)
		e.release(next)
	}},
	{"an instance waits behind the lease that it has detached", func(e *env, key string) {
		a := e.member()
		l := a.lease(key)
		id := a.detach(l, long)
		p := a.place(key)
		adopted, err := e.member().adopt(key, id)
		if err != nil {
			e.Fatalf("Adopt: %v", err)
		}
		e.waiting(p)
		e.passOn(adopted, p)
	}},
	// What the service has heard of is not known. The lock is free when the network is back, before the detached lease would have expired.
	{"a detach without an answer releases the lock", func(e *env, key string) {
		m := e.memberOf(e.Backend)
		m.detachable()
		if e.Cut == nil {
			e.Skipf("no Cut")
		}
		l, _ := m.brief(key)
		id := rand.Text()
		e.Cut(true)
		ctx, cancel := context.WithTimeout(context.Background(), e.ttl/4)
		defer cancel()
		err := m.transferer().Detach(ctx, l, id, long)
		e.Cut(false)
		if !errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("Detach without an answer: %v; want ErrUnavailable, or the end of its context", err)
		}
		e.free(key)
	}},
	{"after Close nothing is detached or adopted", func(e *env, key string) {
		m := e.memberOf(e.Backend)
		m.detachable()
		l := m.lease(key)
		e.close()
		if err := m.tryDetach(l, rand.Text(), long); !errors.Is(err, distributed.ErrClosed) {
			e.Errorf("Detach: %v; want ErrClosed", err)
		}
		if _, err := m.adopt(key, rand.Text()); !errors.Is(err, distributed.ErrClosed) {
			e.Errorf("Adopt: %v; want ErrClosed", err)
		}
		if err := m.discard(key, rand.Text()); !errors.Is(err, distributed.ErrClosed) {
			e.Errorf("Discard: %v; want ErrClosed", err)
		}
	}},
}

// transferer returns the member's backend, or skips the case if leases cannot be detached there.
func (m *member) transferer() distributed.Transferer {
	m.Helper()
	t, ok := distributed.TransfererOf(m.backend)
	if !ok {
		m.Skipf("leases cannot be detached")
	}
	return t
}

func (m *member) detachable() { m.Helper(); m.transferer() }

// detach detaches a lease of this member, under an id that it returns.
func (m *member) detach(l distributed.Lease, lasts time.Duration) (id string) {
	m.Helper()
	id = rand.Text()
	if err := m.tryDetach(l, id, lasts); err != nil {
		m.Fatalf("Detach: %v", err)
	}
	return id
}

func (m *member) tryDetach(l distributed.Lease, id string, lasts time.Duration) error {
	m.Helper()
	t := m.transferer()
	return try(func(ctx context.Context) error { return t.Detach(ctx, l, id, lasts) })
}

func (m *member) adopt(key, id string, hows ...how) (l distributed.Lease, err error) {
	m.Helper()
	t := m.transferer()
	err = try(func(ctx context.Context) error {
		l, err = t.Adopt(ctx, m.request(key, hows...), id)
		return err
	})
	return l, err
}

func (m *member) discard(key, id string) error {
	m.Helper()
	t := m.transferer()
	return try(func(ctx context.Context) error { return t.Discard(ctx, m.request(key), id) })
}
