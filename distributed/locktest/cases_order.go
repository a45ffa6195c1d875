package locktest

import (
	"errors"

	"github.com/wllock/wllock/distributed"
)

var orderCases = []Case{
	{"an exclusive lease excludes everybody else", func(e *env, key string) {
		l := e.member().lease(key)
		p := e.member().place(key)
		e.member().refused(key)
		e.member().refused(key, shared)
		e.waiting(p)
		e.release(l)
		l = e.granted(p)
		e.held(key, l)
		e.release(l)
	}},
	{"an instance is excluded by its own lease too", func(e *env, key string) {
		m := e.member()
		l := m.lease(key)
		m.refused(key)
		p := m.place(key)
		e.waiting(p)
		e.passOn(l, p)
	}},
	{"first come first served across instances", func(e *env, key string) {
		l := e.member().lease(key)
		places := e.queue(key, 8)
		for i, p := range places {
			e.waiting(places[i:]...)
			e.release(l)
			l = e.granted(p)
		}
		e.release(l)
	}},
	// A lock that is free for a moment between two holders goes to a newcomer that asks in that moment.
	{"a hand-off leaves no gap for a newcomer", func(e *env, key string) {
		newcomer := e.member()
		l := e.member().lease(key)
		for range 10 {
			p := e.member().place(key)
			e.release(l)
			newcomer.refused(key)
			l = e.granted(p)
		}
		e.release(l)
	}},
	// An instance asks again when the answer to its first request was lost.
	{"leaving an older place keeps the newer one", func(e *env, key string) {
		m := e.member()
		l := e.member().lease(key)
		older := m.place(key)
		newer := m.place(key)
		e.leave(older)
		e.waiting(newer)
		e.passOn(l, newer)
	}},
}

var noWaitCases = []Case{
	{"no wait takes a free key", func(e *env, key string) {
		l := e.member().lease(key, noWait)
		e.held(key, l)
		e.release(l)
	}},
	{"no wait is never queued", func(e *env, key string) {
		l := e.member().lease(key)
		for range 3 {
			e.member().refused(key)
		}
		p := e.member().place(key)
		e.member().refused(key)
		e.passOn(l, p)
		e.release(e.member().lease(key)) // at once: no refused request is queued before it
	}},
	{"a full queue takes no other", func(e *env, key string) {
		behindFewer := func(n int) how { return func(r *distributed.Request) { r.QueueMost = n } }
		first, _, err := e.member().try(key, behindFewer(1))
		if errors.Is(err, errors.ErrUnsupported) {
			e.Skipf("QueueMost")
		}
		if first == nil {
			e.Fatalf("Enter answered %v for a free key", err)
		}
		full := func(hows ...how) {
			if l, p, err := e.member().try(key, hows...); !errors.Is(err, distributed.ErrHeld) {
				e.Fatalf("Enter answered %s; want ErrHeld, since the queue is full", answer(l, p, err))
			}
		}
		second := e.member().place(key, behindFewer(1))
		third := e.member().place(key, behindFewer(2))
		full(behindFewer(2))
		full(behindFewer(2), shared)
		e.release(first)
		l := e.granted(second)
		fourth := e.member().place(key, behindFewer(2))
		full(behindFewer(1))
		e.passOn(l, third, fourth)
	}},
	{"a queue that makes no sense is an error", func(e *env, key string) {
		if l, p, err := e.member().try(key, func(r *distributed.Request) { r.QueueMost = -1 }); err == nil {
			e.Errorf("Enter answered %s; want an error", answer(l, p, err))
		}
	}},
}
