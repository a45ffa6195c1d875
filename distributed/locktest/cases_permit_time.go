package locktest

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

func permitExpires(e *env) {
	key := e.key("k")
	stale, l := e.member().lease(key, permits(2), lasting(e.ttl)), e.member().lease(key, permits(2))
	p := e.member().place(key, permits(2))
	stale.Abandon()
	next := e.granted(p)
	if early := distributed.Left(time.Now(), stale.Until()); early > 0 {
		e.Errorf("the next one was let in %v before the permit expired", early)
	}
	e.lost(stale)
	e.lostRelease(stale)
	e.member().refused(key, permits(2))
	e.held(key, l)
	e.held(key, next)
	e.release(next)
	stale = e.member().lease(key, permits(2), lasting(e.ttl))
	e.letExpire(stale)
	e.eventually("an expired permit is free again", func() bool { // without a waiter
		ctx, cancel := timely()
		defer cancel()
		l, _, _ := e.member().enter(ctx, key, permits(2), noWait)
		if l != nil {
			e.release(l)
		}
		return l != nil
	})
	e.release(l)
	e.free(key)
}

func permitsRenewed(e *env) {
	key, ttl := e.key("k"), 4*e.ttl // longer than a busy machine stands still
	leases := e.take(key, 2, lasting(ttl))
	released := e.member().lease(key, permits(3), lasting(ttl))
	for start := time.Now(); time.Since(start) < ttl*3/2; time.Sleep(ttl / 8) {
		e.held(key, leases[0])
		e.held(key, leases[1])
		e.member().refused(key, permits(2))
		e.release(released)
		released = e.member().lease(key, permits(3), lasting(ttl))
	}
	e.releaseAll(append(leases, released)...)
	e.free(key)
}

func permitUnreceived(e *env) {
	key, ttl := e.key("k"), 4*e.ttl
	l, other := e.member().lease(key, permits(2)), e.member().lease(key, permits(2))
	absent := e.member().place(key, permits(2), lasting(ttl))
	next := e.member().place(key, permits(2))
	start := time.Now()
	e.release(l)
	l = e.granted(next)
	if took, most := time.Since(start), distributed.ClaimWindow(ttl)+ttl/3; took > most {
		e.late("a permit that nobody received delayed the next one by %v; want at most %v", took, most)
	}
	if late, ok := <-absent.Granted(); ok { // closed is right as well
		e.lost(late)
		e.lostRelease(late)
	}
	e.held(key, l)
	e.releaseAll(l, other)
	e.free(key)
}

func permitsRobbed(e *env) {
	key := e.key("k")
	leases := e.take(key, 2, lasting(e.ttl))
	a, b, c := e.member().place(key, permits(2)), e.member().place(key, permits(2)), e.member().place(key, permits(2))
	e.expire(key)
	next := []distributed.Lease{e.granted(a), e.granted(b)}
	e.waiting(c)
	for _, l := range leases {
		e.lost(l)
		e.lostRelease(l)
	}
	e.waiting(c)
	e.releaseAll(next...)
	e.release(e.granted(c))
	e.free(key)
}

func permitsContended(e *env) {
	key := e.key("k")
	var held []distributed.Lease
	var all []*witness
	for range 2 {
		l, w := e.watch(e.member().lease(key, permits(2), lasting(e.ttl)))
		held, all = append(held, l), append(all, w)
	}
	p := e.member().place(key, permits(2))
	for i, l := range held {
		e.contended(l, all[i])
	}
	e.leave(p)
	for _, l := range held {
		e.eventually("the permit is not contended any more", func() bool { return !l.Contended() })
	}
	for _, l := range held {
		e.release(l)
	}
	e.free(key)
}

func permitCutPlace(e *env) {
	key := e.key("k")
	l := e.member().lease(key, permits(1))
	p := e.member().place(key, permits(1), lasting(e.ttl))
	heal := e.cut()
	time.Sleep(2 * e.ttl)
	heal()
	e.back()
	e.release(l)
	select {
	case l, ok := <-p.Granted():
		if ok {
			e.release(l)
		}
	case <-time.After(patience):
		e.Fatalf("the place was neither granted nor lost")
	}
	e.free(key)
}

// drawn checks that the fences of a key are drawn once. It keeps the highest of each lease.
type drawn struct {
	*env
	seen    map[uint64]bool
	highest map[distributed.Lease]uint64
}

// draw draws some fences from a permit, which must be new, grow, and be above others.
func (d *drawn) draw(l distributed.Lease, above uint64, n int) {
	d.Helper()
	for range n {
		fence := d.fence(l)
		d.highest[l] = d.above(max(above, d.highest[l]), fence)
		if d.seen[fence] {
			d.Fatalf("fence %d is of two callers", fence)
		}
		d.seen[fence] = true
	}
}

func (e *env) drawn() *drawn {
	return &drawn{env: e, seen: map[uint64]bool{}, highest: map[distributed.Lease]uint64{}}
}

// Each caller has its own, as with an exclusive lease: a store can tell one from the next.
func permitFences(e *env) {
	key, d := e.key("k"), e.drawn()
	leases, ended := e.take(key, 3), uint64(0)
	for i := range 6 {
		for _, l := range leases {
			d.draw(l, 0, 3)
		}
		gone := leases[(2*i)%3] // also one whose fences are not the latest
		ended = max(ended, d.highest[gone])
		e.release(gone)
		next := e.member().lease(key, permits(3)) // above all of those that have ended; not of those that are held
		d.draw(next, ended, 3)
		leases[(2*i)%3] = next
	}
	e.releaseAll(leases...)
	writer, places := e.member().lease(key), []distributed.Place{}
	for range leases {
		places = append(places, e.member().place(key, permits(3)))
	}
	above := e.fence(writer)
	e.release(writer)
	for i, p := range places { // one release lets them all in, and each has its own
		leases[i] = e.granted(p)
		d.draw(leases[i], above, 3)
	}
	e.releaseAll(leases...)
	e.free(key)
}

func permitFencesBetween(e *env) {
	key, last := e.key("k"), uint64(0)
	for range 3 {
		l, d := e.member().lease(key), e.drawn()
		last = e.above(last, e.fence(l))
		e.release(l)
		leases := e.take(key, 2)
		for i := range 2500 { // beyond any reserve
			d.draw(leases[i%2], last, 1)
		}
		e.release(leases[1]) // what is left of its reserve may come again, what was drawn may not
		third := e.member().lease(key, permits(9))
		d.draw(third, d.highest[leases[1]], 1500)
		d.draw(leases[0], last, 1500)
		e.releaseAll(leases[0], third)
		last = max(d.highest[leases[0]], d.highest[third])
	}
	e.free(key)
}

// A holder that was paused past its permit goes on with a fence, and a store must be able to refuse it.
func permitFenceOfTheLost(e *env) {
	key := e.key("k")
	beside := e.member().lease(key, permits(2))
	stale, _ := e.member().brief(key, permits(2))
	permit, next := e.member().ask(key, permits(2)), e.member().place(key) // queued, unless the permit has expired already
	e.letExpire(stale)
	l := permit()
	if l == nil {
		return
	}
	e.stale(stale, e.fence(l))
	e.releaseAll(l, beside)
	l = e.granted(next)
	e.stale(beside, e.fence(l))
	e.release(l)
}

// count checks that at most so many are inside.
type count struct {
	*env
	permits, writers atomic.Int32
}

func (c *count) work(limit int, exclusive bool) {
	if exclusive {
		c.writers.Add(1)
		defer c.writers.Add(-1)
	} else if now := c.permits.Add(1); now > int32(limit) {
		c.Errorf("%d permits of %d are held", now, limit)
	}
	runtime.Gosched()
	if w, p := c.writers.Load(), c.permits.Load(); w > 1 || w == 1 && p > 0 {
		c.Errorf("%d exclusive holders and %d permits at a time", w, p)
	}
	if !exclusive {
		c.permits.Add(-1)
	}
}

// Some ask for all: a drain under load. Every member finishes, so nobody starves.
func permitLoad(e *env) {
	key, in := e.key("k"), &count{env: e}
	e.together(loadMembers, func(m *member, rnd *rand.Rand) {
		for range loadRounds {
			limit, exclusive := 1+rnd.IntN(3), rnd.IntN(10) == 0
			ask := permits(limit)
			if exclusive {
				ask = func(*distributed.Request) {}
			}
			l := m.wait(key, ask)
			if l == nil {
				return
			}
			in.work(3, exclusive)
			if err := e.tryRelease(l); err != nil {
				e.Errorf("Release: %v", err)
			}
		}
	})
	e.free(key)
}

func permitLoadPrev(e *env) {
	key, in := e.key("k"), &count{env: e}
	e.together(loadMembers, func(m *member, _ *rand.Rand) {
		var last distributed.Lease
		for range loadRounds {
			l := m.wait(key, permits(3), prev(last))
			if l == nil {
				return
			}
			in.work(3, false)
			last = l
		}
		if err := e.tryRelease(last); err != nil {
			e.Errorf("Release: %v", err)
		}
	})
	e.free(key)
}

func permitCancels(e *env) {
	key := e.key("k")
	e.together(loadMembers, func(m *member, rnd *rand.Rand) {
		for range loadRounds {
			m.enterAndLeave(key, rnd, permits(1+rnd.IntN(3)))
		}
	})
	start := time.Now()
	e.free(key)
	if took, most := time.Since(start), distributed.ClaimWindow(e.ttl)+e.ttl; took > most {
		e.late("what was left behind delayed others by %v; want at most %v", took, most)
	}
}
