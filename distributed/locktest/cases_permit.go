package locktest

import (
	"context"
	"errors"

	"github.com/wllock/wllock/distributed"
)

var permitCases = gated([]Case{
	{"at most so many permits are held, and a free one is granted at once", permitsExact},
	{"permits are first come first served", permitsFIFO},
	{"the head that waits for a permit holds up all behind it", permitHeadBlocks},
	{"no wait takes a free permit and is never queued", permitNoWait},
	{"a smaller limit admits nobody until fewer are held", permitsShrink},
	{"a larger limit admits more at once", permitsGrow},
	{"an exclusive request waits for all permits, and permits behind it for that", permitsDrain},
	{"as many permits as are free enter together", permitsTogether},
	{"readers and permits count alike", permitsAmongReaders},
	{"permits enter beside others when the request before them leaves", permitHeadLeaves},
	{"permits enter beside a downgraded lease", permitsBesideDowngraded},
	{"a permit that is released twice is one permit", permitReleasedTwice},
	{"leaving an unread permit passes it on", permitLeaveUnread},
	{"a permit is released as prev in the same exchange", permitPrev},
	{"a permit as prev does not pass the queue", permitPrevBehindQueue},
	{"prev may be a permit or not, whatever is asked for", permitPrevOtherMode},
	{"a limit that makes no sense is an error", permitLimits},
	{"a permit expires alone, and not before Until", permitExpires},
	{"permits outlive their TTL, renewed each by itself", permitsRenewed},
	{"a permit that nobody receives delays others by the claim window", permitUnreceived},
	{"permits that were taken away are lost, and as many are granted", permitsRobbed},
	{"holders of permits learn that another instance waits", permitsContended},
	{"a waiter for a permit survives a cut, or finds its place lost", permitCutPlace},
	{"permits have fences of their own", permitFences},
	{"fences of permits lie between those of exclusive leases", permitFencesBetween},
	{"a lost permit draws no fence above those of later leases", permitFenceOfTheLost},
	{"never too many permits under load", permitLoad},
	{"never too many permits under load with prev", permitLoadPrev},
	{"canceling and leaving permits at any time leaves nothing", permitCancels},
})

// permits asks for one of n permits.
func permits(n int) how {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

// gated skips cases for services without permits, once these have said so.
func gated(cases []Case) []Case {
	for i, c := range cases {
		cases[i].run = func(e *env) {
			if e.NoPermits {
				e.unsupported()
				e.Skipf("permits")
			}
			c.run(e)
		}
	}
	return cases
}

// unsupported asserts that a limit is refused. A backend that ignored it would admit too many without a word.
func (e *env) unsupported() {
	e.Helper()
	ctx, cancel := timely()
	defer cancel()
	if l, p, err := e.member().enter(ctx, e.key("k"), permits(2)); !errors.Is(err, errors.ErrUnsupported) {
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

func (e *env) releaseAll(leases ...distributed.Lease) {
	e.Helper()
	for _, l := range leases {
		e.release(l)
	}
}

func permitsExact(e *env) {
	key := e.key("k")
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
	e.releaseAll(leases...)
	e.releaseAll(e.take(key, 3)...)
	e.free(key)
}

func permitsFIFO(e *env) {
	key := e.key("k")
	leases := e.take(key, 2)
	var places []distributed.Place
	for range 6 {
		places = append(places, e.member().place(key, permits(2)))
	}
	for i, p := range places {
		e.waiting(places[i:]...)
		e.release(leases[i])
		leases = append(leases, e.granted(p))
	}
	e.releaseAll(leases[len(places):]...)
	e.free(key)
}

// Were those behind let past, the head could wait for ever.
func permitHeadBlocks(e *env) {
	key := e.key("k")
	leases := e.take(key, 2)
	head := e.member().place(key, permits(1))
	larger, reader := e.member().place(key, permits(5)), e.member().place(key, shared)
	e.member().refused(key, permits(5))
	e.member().refused(key, shared)
	e.release(leases[0])
	e.waiting(head, larger, reader)
	e.release(leases[1])
	e.releaseAll(e.granted(head), e.granted(larger), e.granted(reader))
	e.free(key)
}

func permitNoWait(e *env) {
	key := e.key("k")
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
	e.releaseAll(again, l)
	e.release(e.member().lease(key, noWait))
}

func permitsShrink(e *env) {
	key := e.key("k")
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
	e.releaseAll(l, e.granted(next))
	e.free(key)
}

func permitsGrow(e *env) {
	key := e.key("k")
	leases := e.take(key, 2)
	e.member().refused(key, permits(2))
	leases = append(leases, e.member().lease(key, permits(4)), e.member().lease(key, permits(4), noWait))
	e.member().refused(key, permits(4))
	e.releaseAll(leases...)
	e.free(key)
}

func permitsDrain(e *env) {
	key := e.key("k")
	leases := e.take(key, 3)
	drain := e.member().place(key)
	behind := []distributed.Place{e.member().place(key, permits(3)), e.member().place(key, permits(3)), e.member().place(key, permits(3))}
	for _, l := range leases {
		e.waiting(append(behind, drain)...)
		e.member().refused(key, permits(3))
		e.release(l)
	}
	l := e.granted(drain)
	e.waiting(behind...)
	e.member().refused(key, permits(3))
	e.release(l)
	for _, p := range behind {
		e.release(e.granted(p))
	}
	e.free(key)
}

func permitsTogether(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	var places []distributed.Place
	for range 5 {
		places = append(places, e.member().place(key, permits(3)))
	}
	e.release(l)
	leases := []distributed.Lease{e.granted(places[0]), e.granted(places[1]), e.granted(places[2])}
	e.waiting(places[3:]...)
	e.releaseAll(leases[1:]...)
	e.releaseAll(e.granted(places[4]), e.granted(places[3]), leases[0])
	e.free(key)
}

func permitsAmongReaders(e *env) {
	key := e.key("k")
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
	e.release(permit)
	e.release(e.granted(writer))
	e.free(key)
}

func permitHeadLeaves(e *env) {
	key := e.key("k")
	for _, first := range []how{permits(1), func(*distributed.Request) {}} {
		holder := e.member().lease(key, permits(2))
		head := e.member().place(key, first)
		a, b := e.member().place(key, permits(2)), e.member().place(key, permits(2))
		e.waiting(head, a, b)
		e.leave(head)
		l := e.granted(a)
		e.waiting(b)
		e.release(holder)
		e.releaseAll(l, e.granted(b))
		e.free(key)
	}
}

func permitsBesideDowngraded(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	a, b := e.member().place(key, permits(2)), e.member().place(key, permits(2))
	e.downgrade(l)
	beside := e.granted(a)
	e.waiting(b)
	e.release(l)
	e.releaseAll(beside, e.granted(b))
	e.free(key)
}

// A semaphore that counts releases would admit one too many after this.
func permitReleasedTwice(e *env) {
	key := e.key("k")
	leases := e.take(key, 2)
	e.release(leases[0])
	e.release(leases[0])
	again := e.member().lease(key, permits(2))
	e.release(leases[0])
	e.member().refused(key, permits(2))
	e.held(key, leases[1])
	e.releaseAll(again, leases[1])
	e.free(key)
}

func permitLeaveUnread(e *env) {
	key := e.key("k")
	leases := e.take(key, 2)
	left, next := e.member().place(key, permits(2)), e.member().place(key, permits(2))
	e.release(leases[0])
	e.eventually("the grant arrives", func() bool { return len(left.Granted()) > 0 })
	e.waiting(next)
	e.leave(left)
	e.leave(left)
	l := e.granted(next)
	e.member().refused(key, permits(2))
	e.releaseAll(l, leases[1])
	e.free(key)
}

func permitPrev(e *env) {
	key, m := e.key("k"), e.member()
	l, other := m.lease(key, permits(2)), e.member().lease(key, permits(2))
	for range 3 {
		next := m.lease(key, permits(2), prev(l), noWait)
		e.release(l) // a duplicate by now
		e.member().refused(key, permits(2))
		l = next
	}
	e.held(key, other)
	e.releaseAll(l, other)
	e.free(key)
}

func permitPrevBehindQueue(e *env) {
	key, m := e.key("k"), e.member()
	l, other := m.lease(key, permits(2)), e.member().lease(key, permits(2))
	waits := e.member().place(key, permits(2))
	own := m.place(key, permits(2), prev(l))
	granted := e.granted(waits)
	e.waiting(own)
	m.refused(key, permits(2), prev(l))
	e.release(other)
	e.releaseAll(e.granted(own), granted)
	e.free(key)
}

func permitPrevOtherMode(e *env) {
	key, m := e.key("k"), e.member()
	l := m.lease(key, permits(2))
	l = m.lease(key, permits(1), prev(l))
	l = m.lease(key, prev(l))
	e.member().refused(key, permits(9))
	l = m.lease(key, permits(2), prev(l))
	l = m.lease(key, shared, prev(l))
	l = m.lease(key, permits(1), prev(l))
	other := e.member().lease(key, permits(2))
	own := m.place(key, prev(l)) // the other permit is still held
	e.release(other)
	e.release(e.granted(own))
	e.free(key)
}

func permitLimits(e *env) {
	key := e.key("k")
	for _, req := range []how{permits(-1), func(r *distributed.Request) { r.Limit = 1 }} {
		ctx, cancel := context.WithCancel(context.Background())
		if l, p, err := e.member().enter(ctx, key, req); err == nil {
			e.Errorf("Enter answered %s; want an error", answer(l, p, err))
		}
		cancel()
	}
	e.free(key)
}
