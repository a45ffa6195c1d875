package locktest

import (
	"errors"

	"github.com/wllock/wllock/distributed"
)

var permitCases = gated([]Case{
	{"at most so many permits are held, and a free one is granted at once", func(e *env, key string) {
		leases := e.take(key, 3)
		e.member().refused(key, permits(3))
		p := e.member().place(key, permits(3))
		for i := range leases { // whichever is released
			e.waiting(p)
			e.held(key, leases[i])
			e.release(leases[i])
			leases[i] = e.granted(p)
			p = e.member().place(key, permits(3))
		}
		e.leave(p)
		e.release(leases...)
		e.release(e.take(key, 3)...)
	}},
	{"permits are first come first served", func(e *env, key string) {
		leases := e.take(key, 2)
		places := e.queue(key, 6, permits(2))
		for i, p := range places {
			e.waiting(places[i:]...)
			e.release(leases[i])
			leases = append(leases, e.granted(p))
		}
		e.release(leases[len(places):]...)
	}},
	// Were those behind let past, the head could wait for ever.
	{"the head that waits for a permit holds up all behind it", func(e *env, key string) {
		leases := e.take(key, 2)
		head := e.member().place(key, permits(1))
		larger, reader := e.member().place(key, permits(5)), e.member().place(key, shared)
		e.member().refused(key, permits(5))
		e.member().refused(key, shared)
		e.release(leases[0])
		e.waiting(head, larger, reader)
		e.passOn(leases[1], head, larger, reader)
	}},
	{"no wait takes a free permit and is never queued", func(e *env, key string) {
		leases := e.take(key, 2, noWait)
		for range 3 {
			e.member().refused(key, permits(2))
		}
		e.release(leases[0])
		again := e.member().lease(key, permits(2), noWait) // at once: no refused request is queued before it
		p := e.member().place(key, permits(2))
		e.release(leases[1])
		l := e.granted(p)
		e.member().refused(key, permits(2))
		e.release(again, l)
		e.release(e.member().lease(key, noWait))
	}},
	{"a smaller limit admits nobody until fewer are held", func(e *env, key string) {
		leases := e.take(key, 4)
		e.member().refused(key, permits(2))
		p, next := e.member().place(key, permits(2)), e.member().place(key, permits(2))
		for _, l := range leases[:2] {
			e.release(l)
			e.waiting(p, next)
		}
		e.release(leases[2])
		l := e.granted(p)
		e.waiting(next)
		e.release(leases[3])
		e.release(l, e.granted(next))
	}},
	{"a larger limit admits more at once", func(e *env, key string) {
		leases := e.take(key, 2)
		e.member().refused(key, permits(2))
		leases = append(leases, e.member().lease(key, permits(4)), e.member().lease(key, permits(4), noWait))
		e.member().refused(key, permits(4))
		e.release(leases...)
	}},
	{"an exclusive request waits for all permits, and permits behind it for that", func(e *env, key string) {
		leases := e.take(key, 3)
		drain := e.member().place(key)
		behind := e.queue(key, 3, permits(3))
		for _, l := range leases {
			e.waiting(append(behind, drain)...)
			e.member().refused(key, permits(3))
			e.release(l)
		}
		l := e.granted(drain)
		e.waiting(behind...)
		e.member().refused(key, permits(3))
		e.passOn(l, behind...)
	}},
	{"as many permits as are free enter together", func(e *env, key string) {
		l := e.member().lease(key)
		places := e.queue(key, 5, permits(3))
		e.release(l)
		leases := []distributed.Lease{e.granted(places[0]), e.granted(places[1]), e.granted(places[2])}
		e.waiting(places[3:]...)
		e.release(leases[1:]...)
		e.release(e.granted(places[4]), e.granted(places[3]), leases[0])
	}},
	{"readers and permits count alike", func(e *env, key string) {
		reader := e.member().lease(key, shared)
		permit := e.member().lease(key, permits(2))
		e.member().refused(key, permits(2))
		another := e.member().lease(key, shared) // a reader has no limit
		e.release(reader)
		e.member().refused(key, permits(2))
		e.release(permit)
		permit = e.member().lease(key, permits(2))
		writer := e.member().place(key)
		e.release(another)
		e.waiting(writer)
		e.passOn(permit, writer)
	}},
	{"permits enter beside others when the request before them leaves", func(e *env, key string) {
		for _, first := range []how{permits(1), exclusive} {
			holder := e.member().lease(key, permits(2))
			head := e.member().place(key, first)
			a, b := e.member().place(key, permits(2)), e.member().place(key, permits(2))
			e.waiting(head, a, b)
			e.leave(head)
			l := e.granted(a)
			e.waiting(b)
			e.release(holder)
			e.release(l, e.granted(b))
			e.free(key)
		}
	}},
	{"permits enter beside a downgraded lease", func(e *env, key string) {
		l := e.member().lease(key)
		a, b := e.member().place(key, permits(2)), e.member().place(key, permits(2))
		e.downgrade(l)
		beside := e.granted(a)
		e.waiting(b)
		e.release(l)
		e.release(beside, e.granted(b))
	}},
	// A semaphore that counts releases would admit one too many after this.
	{"a permit that is released twice is one permit", func(e *env, key string) {
		leases := e.take(key, 2)
		e.release(leases[0])
		e.release(leases[0])
		again := e.member().lease(key, permits(2))
		e.release(leases[0])
		e.member().refused(key, permits(2))
		e.held(key, leases[1])
		e.release(again, leases[1])
	}},
	{"leaving an unread permit passes it on", func(e *env, key string) {
		leases := e.take(key, 2)
		left, next := e.member().place(key, permits(2)), e.member().place(key, permits(2))
		e.release(leases[0])
		e.eventually("the grant arrives", func() bool { return len(left.Granted()) > 0 })
		e.waiting(next)
		e.leave(left)
		e.leave(left)
		l := e.granted(next)
		e.member().refused(key, permits(2))
		e.release(l, leases[1])
	}},
	{"a permit is released as prev in the same exchange", func(e *env, key string) {
		m := e.member()
		l, other := m.lease(key, permits(2)), e.member().lease(key, permits(2))
		for range 3 {
			next := m.lease(key, permits(2), prev(l), noWait)
			e.release(l) // a duplicate by now
			e.member().refused(key, permits(2))
			l = next
		}
		e.held(key, other)
		e.release(l, other)
	}},
	{"a permit as prev does not pass the queue", func(e *env, key string) {
		m := e.member()
		l, other := m.lease(key, permits(2)), e.member().lease(key, permits(2))
		waits := e.member().place(key, permits(2))
		own := m.place(key, permits(2), prev(l))
		granted := e.granted(waits)
		e.waiting(own)
		m.refused(key, permits(2), prev(l))
		e.release(other)
		e.release(e.granted(own), granted)
	}},
	{"prev may be a permit or not, whatever is asked for", func(e *env, key string) {
		m := e.member()
		l := m.lease(key, permits(2))
		l = m.lease(key, permits(1), prev(l))
		l = m.lease(key, prev(l))
		e.member().refused(key, permits(9))
		l = m.lease(key, permits(2), prev(l))
		l = m.lease(key, shared, prev(l))
		l = m.lease(key, permits(1), prev(l))
		other := e.member().lease(key, permits(2))
		own := m.place(key, prev(l)) // the other permit is still held
		e.passOn(other, own)
	}},
	{"a limit that makes no sense is an error", func(e *env, key string) {
		for _, req := range []how{permits(-1), func(r *distributed.Request) { r.Limit = 1 }} {
			if l, p, err := e.member().try(key, req); err == nil {
				e.Errorf("Enter answered %s; want an error", answer(l, p, err))
			}
		}
	}},
})

// permits asks for one of n permits.
func permits(n int) how {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

// gated skips cases for services without permits, once these have said so.
func gated(cases []Case) []Case {
	for i, c := range cases {
		cases[i].run = func(e *env, key string) {
			if e.NoPermits {
				e.unsupported(key)
				e.Skipf("permits")
			}
			c.run(e, key)
		}
	}
	return cases
}

// unsupported asserts that a limit is refused. A backend that ignored it would admit too many without a word.
func (e *env) unsupported(key string) {
	e.Helper()
	if l, p, err := e.member().try(key, permits(2)); !errors.Is(err, errors.ErrUnsupported) {
		e.Errorf("Enter with a limit answered %s; want errors.ErrUnsupported", answer(l, p, err))
	}
}

// take returns so many permits, acquired at once by an instance each.
func (e *env) take(key string, n int, hows ...how) []distributed.Lease {
	e.Helper()
	leases := make([]distributed.Lease, n)
	for i := range leases {
		leases[i] = e.member().lease(key, append([]how{permits(n)}, hows...)...)
	}
	return leases
}
