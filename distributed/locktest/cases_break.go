package locktest

import (
	"errors"
	"strings"

	"github.com/wllock/wllock/distributed"
)

var breakCases = []Case{
	{"break ends a lease and grants the lock to the next", func(e *env, key string) {
		e.inspector()
		l := e.member().lease(key, lasting(e.ttl)) // a holder that others wait for may notice at its next renewal only
		last := e.fence(l)
		p, q := e.member().place(key), e.member().place(key)
		record := e.broken(e.inspect(key))
		next := e.granted(p)
		e.lost(l)
		e.waiting(q)
		if record.Fence != 0 {
			for range 3 { // what the broken holder may still draw
				if n, ok := l.NextFence(); ok {
					last = n
				}
			}
			if record.Fence < last {
				e.Errorf("the fence is %d, below the broken holder's %d", record.Fence, last)
			}
			e.above(record.Fence, e.fence(next))
		}
		e.lostRelease(l)
		e.held(key, next)
		e.passOn(next, q)
	}},
	// The holder's TTL is long, so that it is lost at once only by a notice.
	{"break without a queue leaves the lock free", func(e *env, key string) {
		e.inspector()
		l := e.member().lease(key)
		last := e.fence(l)
		e.broken(e.inspect(key))
		next := e.member().lease(key)
		e.lost(l)
		e.above(last, e.fence(next))
		e.lostRelease(l)
		e.held(key, next)
		e.release(next)
	}},
	{"break ends the leases of all readers", func(e *env, key string) {
		e.inspector()
		leases := []distributed.Lease{e.member().lease(key, shared, lasting(e.ttl)), e.member().lease(key, shared, lasting(e.ttl))}
		last := max(e.fence(leases[0]), e.fence(leases[1]))
		p := e.member().place(key)
		e.broken(e.inspect(key))
		next := e.granted(p)
		e.above(last, e.fence(next))
		for _, l := range leases {
			e.lost(l)
			e.lostRelease(l)
		}
		e.held(key, next)
		e.release(next)
	}},
	{"break ends what was found, and no later lease", func(e *env, key string) {
		e.inspector()
		a, b := e.member(), e.member()
		for _, mode := range []how{exclusive, shared} {
			l := a.lease(key, mode)
			found := e.inspect(key)
			e.release(l)
			for _, m := range []*member{b, a} {
				l = m.lease(key, mode)
				if _, err := e.tryBreak(found); !errors.Is(err, distributed.ErrNotHeld) {
					e.Fatalf("Break of an earlier lease: %v; want ErrNotHeld", err)
				}
				e.held(key, l)
				e.release(l)
			}
		}
	}},
	// A service that counts the requests for a lock may begin anew when the lock was free. What was found is no later lease even so.
	{"break ends no later lease after the lock was forgotten", func(e *env, _ string) {
		e.inspector()
		if e.Forget == nil {
			e.Skipf("no Forget")
		}
		for name, mode := range map[string]how{"x": exclusive, "s": shared, "p": permits(2)} {
			if name == "p" && e.NoPermits {
				continue
			}
			key, a, b := e.key(name), e.member(), e.member()
			l := a.lease(key, mode)
			found := e.inspect(key)
			e.release(l)
			for range 2 {
				e.Forget(key)
				l = b.lease(key, mode)
				if _, err := e.tryBreak(found); !errors.Is(err, distributed.ErrNotHeld) {
					e.Fatalf("Break of a lease of before: %v; want ErrNotHeld", err)
				}
				e.release(l)
			}
		}
	}},
	{"break of a free lock is refused", func(e *env, key string) {
		e.inspector()
		if _, err := e.tryBreak(e.inspect(key)); !errors.Is(err, distributed.ErrNotHeld) {
			e.Fatalf("Break of a free lock: %v; want ErrNotHeld", err)
		}
		l := e.member().lease(key)
		found := e.inspect(key)
		e.release(l)
		if _, err := e.tryBreak(found); !errors.Is(err, distributed.ErrNotHeld) {
			e.Fatalf("Break of a released lock: %v; want ErrNotHeld", err)
		}
	}},
	{"break wants to know who and why", func(e *env, key string) {
		i, l := e.inspector(), e.member().lease(key)
		found := e.inspect(key)
		ctx, cancel := timely()
		defer cancel()
		for _, bad := range []string{"", " ", "two\nlines", strings.Repeat("x", 1000)} {
			if _, err := i.Break(ctx, found, breaker, bad); err == nil {
				e.Errorf("Break for the reason %q succeeded", bad)
			}
			if _, err := i.Break(ctx, found, bad, whyBroken); err == nil {
				e.Errorf("Break by %q succeeded", bad)
			}
		}
		e.held(key, l)
		e.release(l)
	}},
}

const breaker, whyBroken = "operator", "stuck since noon"

func (e *env) tryBreak(found distributed.Inspection) (distributed.Breaking, error) {
	ctx, cancel := timely()
	defer cancel()
	return e.inspector().Break(ctx, found, breaker, whyBroken)
}

// broken breaks what was found, and checks that this is remembered.
func (e *env) broken(found distributed.Inspection) distributed.Breaking {
	e.Helper()
	record, err := e.tryBreak(found)
	if err != nil {
		e.Fatalf("Break: %v", err)
	}
	if record.By != breaker || record.Reason != whyBroken || record.Holder != found.Holder() {
		e.Errorf("Break recorded %+v; want %q, %q, and the holder %q", record, breaker, whyBroken, found.Holder())
	}
	e.recent("broken", record.At)
	kept := e.inspect(found.Key).Broken
	if kept == nil || kept.By != breaker || kept.Reason != whyBroken || kept.Holder != found.Holder() || kept.Fence != record.Fence {
		e.Errorf("Inspect remembers %+v; want %+v", kept, record)
	}
	return record
}
