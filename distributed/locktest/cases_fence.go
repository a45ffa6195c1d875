package locktest

import (
	"errors"

	"github.com/wllock/wllock/distributed"
)

var fenceCases = []Case{
	// The key is not used between the leases, so the order must not depend on anything kept for it.
	{"fences grow from lease to lease", func(e *env, key string) {
		last := uint64(0)
		for range 20 {
			l := e.member().lease(key)
			last = e.above(last, e.fence(l))
			last = e.above(last, e.fence(l))
			e.release(l)
		}
	}},
	{"fences grow within a lease and across refills", func(e *env, key string) {
		last := uint64(0)
		l := e.member().lease(key)
		for i := range 3000 {
			if i%1000 == 500 { // ahead of need, with some of the reserve left
				if err := try(l.Refill); err != nil && !errors.Is(err, errors.ErrUnsupported) {
					e.Errorf("Refill: %v", err)
				}
			}
			last = e.above(last, e.fence(l))
		}
		e.release(l)
		l = e.member().lease(key)
		e.above(last, e.fence(l))
		e.release(l)
	}},
	{"fences grow across a hand-off", func(e *env, key string) {
		last := uint64(0)
		l := e.member().lease(key)
		for range 10 {
			p := e.member().place(key)
			last = e.above(last, e.fence(l))
			e.release(l)
			l = e.granted(p)
		}
		e.release(l)
	}},
	{"fences grow across an expiry", func(e *env, key string) {
		l, last := e.member().brief(key)
		e.letExpire(l)
		e.free(key)
		l = e.member().lease(key)
		e.above(last, e.fence(l))
		e.release(l)
	}},
	// A holder that was paused past its lease goes on with a fence, and a store must be able to refuse it.
	{"a lost lease draws no fence above its successor's", func(e *env, key string) {
		stale, _ := e.member().brief(key)
		next := e.member().ask(key) // queued, unless the lease has expired already
		e.letExpire(stale)
		if l := next(); l != nil {
			e.stale(stale, e.fence(l))
			e.release(l)
		}
	}},
	{"a released lease draws no fence above its successor's", func(e *env, key string) {
		stale := e.member().lease(key)
		e.fence(stale)
		e.release(stale)
		l := e.member().lease(key)
		e.stale(stale, e.fence(l))
		e.release(l)
	}},
	{"a shared lease has one fence between the writers'", func(e *env, key string) {
		l := e.member().lease(key)
		before := e.fence(l)
		a, b := e.member().place(key, shared), e.member().place(key, shared)
		after := e.member().place(key)
		e.release(l)
		highest := before
		for _, p := range []distributed.Place{a, b} {
			l := e.granted(p)
			n := e.above(before, e.fence(l))
			if again := e.fence(l); again != n {
				e.Errorf("a shared lease has fences %d and %d; want one", n, again)
			}
			highest = max(highest, n)
			e.release(l)
		}
		l = e.granted(after)
		e.above(highest, e.fence(l))
		e.release(l)
	}},
}

// stale asserts that an ended lease draws no fence that a store would take for newer than its successor's.
func (e *env) stale(l distributed.Lease, successor uint64) {
	e.Helper()
	for range 2 {
		for range 10_000 { // more than any reserve
			n, ok := l.NextFence()
			if !ok {
				break
			}
			if n >= successor {
				e.Fatalf("an ended lease drew fence %d, its successor has %d", n, successor)
			}
		}
		_ = try(l.Refill) // may fail or not, as long as it adds nothing that is too new
	}
}
