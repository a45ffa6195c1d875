package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

var sharedCases = []Case{
	{"readers hold together and keep writers out", func(e *env, key string) {
		a := e.member().lease(key, shared)
		b := e.member().lease(key, shared, noWait)
		e.held(key, a)
		e.held(key, b)
		e.release(a)
		e.held(key, b)
		e.release(b)
	}},
	{"a writer waits for the last reader", func(e *env, key string) {
		var readers []distributed.Lease
		for range 3 {
			readers = append(readers, e.member().lease(key, shared))
		}
		writer := e.member().place(key)
		for _, r := range readers {
			e.waiting(writer)
			e.release(r)
		}
		e.release(e.granted(writer))
	}},
	{"a reader does not pass a queued writer", func(e *env, key string) {
		reader := e.member().lease(key, shared)
		writer := e.member().place(key)
		e.member().refused(key, shared)
		late := e.member().place(key, shared)
		e.release(reader)
		l := e.granted(writer)
		e.waiting(late)
		e.passOn(l, late)
	}},
	{"the run of readers at the head enters together", func(e *env, key string) {
		writer := e.member().lease(key)
		first := e.member().place(key, shared)
		second := e.member().place(key, shared)
		between := e.member().place(key)
		third := e.member().place(key, shared)

		e.release(writer)
		a, b := e.granted(first), e.granted(second)
		e.waiting(between, third)
		e.release(b)
		e.waiting(between, third)
		e.release(a)
		l := e.granted(between)
		e.waiting(third)
		e.passOn(l, third)
	}},
	{"readers enter when the writer before them leaves", func(e *env, key string) {
		holder := e.member().lease(key)
		writer := e.member().place(key)
		reader := e.member().place(key, shared)
		e.leave(writer)
		e.waiting(reader)
		e.passOn(holder, reader)
	}},
	{"readers enter beside others when the writer before them leaves", func(e *env, key string) {
		holder := e.member().lease(key, shared)
		writer := e.member().place(key)
		a := e.member().place(key, shared)
		b := e.member().place(key, shared)
		e.waiting(writer, a, b)
		e.leave(writer)
		e.passOn(e.granted(a), b)
		e.held(key, holder)
		e.release(holder)
	}},
	{"a downgraded lease goes on, and the readers at the head enter beside it", func(e *env, key string) {
		l := e.member().lease(key)
		first, second := e.member().place(key, shared), e.member().place(key, shared)
		writer, third := e.member().place(key), e.member().place(key, shared)
		e.downgrade(l)
		a, b := e.granted(first), e.granted(second)
		e.held(key, l)
		e.waiting(writer, third)
		e.downgrade(l) // again: nothing changes
		e.release(a, b)
		e.waiting(writer, third)
		e.release(l)
		w := e.granted(writer)
		e.waiting(third)
		e.passOn(w, third)
		e.free(key)

		l = e.member().lease(key)
		e.downgrade(l)
		beside := e.member().lease(key, shared)
		e.release(l)
		e.held(key, beside)
		e.release(beside)
	}},
	{"a downgraded lease is renewed and lost like a shared one", func(e *env, key string) {
		l, others := e.member().lease(key, lasting(e.ttl)), e.member()
		e.downgrade(l)
		var plain []distributed.Lease // renewed at the same time, perhaps in the same exchange
		for _, name := range []string{"a", "b"} {
			plain = append(plain, others.lease(e.key(name), lasting(e.ttl)))
		}
		time.Sleep(2 * e.ttl)
		e.held(key, l)
		writer := e.member().place(key)
		watched, w := e.watch(l)
		e.contended(watched, w)
		e.release(plain...)
		e.letExpire(l)
		e.lostRelease(l)
		e.release(e.granted(writer))
	}},
	{"a downgraded lease can be released as prev", func(e *env, key string) {
		m := e.member()
		l := m.lease(key)
		e.downgrade(l)
		writer := m.lease(key, prev(l))
		e.release(writer)
		e.release(l) // again

		l = m.lease(key)
		reader := e.member().place(key, shared)
		e.downgrade(l)
		place := m.place(key, prev(l))
		e.waiting(place)
		e.passOn(e.granted(reader), place)
	}},
	{"a downgraded lease has a fence above its own and below the next", func(e *env, key string) {
		l := e.member().lease(key)
		before := e.fence(l)
		e.downgrade(l)
		fence := e.above(before, e.fence(l))
		if again := e.fence(l); again != fence {
			e.Errorf("a downgraded lease has the fences %d and %d; want one", fence, again)
		}
		e.release(l)
		l = e.member().lease(key)
		e.above(fence, e.fence(l))
		e.release(l)
	}},
	{"a lease that was lost is not downgraded", func(e *env, key string) {
		l := e.member().lease(key, lasting(e.ttl))
		p := e.member().place(key)
		e.letExpire(l)
		next := e.granted(p)
		if err := e.tryDowngrade(l); !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Downgrade: %v; want ErrLeaseLost", err)
		}
		e.member().refused(key, shared)
		e.release(next)
	}},
	{"a downgrade and a release may overtake each other", func(e *env, key string) {
		rnd := e.random()
		for range 50 {
			m := e.member()
			l := m.lease(key)
			answer := make(chan error)
			go func() { answer <- l.Downgrade(context.Background()) }()
			if rnd.IntN(2) == 0 {
				e.release(l)
			} else {
				e.release(m.lease(key, prev(l)))
			}
			if err := <-answer; err != nil && !errors.Is(err, distributed.ErrLeaseLost) {
				e.Errorf("Downgrade: %v; want nil or ErrLeaseLost", err)
			}
			e.free(key)
		}
	}},
}

// downgrade makes the lease a shared one, or skips the case.
func (e *env) downgrade(l distributed.Lease) {
	e.Helper()
	if err := e.tryDowngrade(l); err != nil {
		e.Fatalf("Downgrade: %v", err)
	}
}

func (e *env) tryDowngrade(l distributed.Lease) error {
	e.Helper()
	err := try(l.Downgrade)
	if errors.Is(err, errors.ErrUnsupported) {
		e.Skipf("leases cannot be downgraded")
	}
	return err
}
