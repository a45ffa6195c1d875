package locktest

import (
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
)

var permitTimeCases = gated([]Case{
	{"a permit expires alone, and not before Until", func(e *env, key string) {
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
			l, _, _ := e.member().try(key, permits(2), noWait)
			if l != nil {
				e.release(l)
			}
			return l != nil
		})
		e.release(l)
	}},
	{"permits outlive their TTL, renewed each by itself", func(e *env, key string) {
		ttl := 4 * e.ttl // longer than a busy machine stands still
		leases := e.take(key, 2, lasting(ttl))
		released := e.member().lease(key, permits(3), lasting(ttl))
		for start := time.Now(); time.Since(start) < ttl*3/2; time.Sleep(ttl / 8) {
			e.held(key, leases[0])
			e.held(key, leases[1])
			e.member().refused(key, permits(2))
			e.release(released)
			released = e.member().lease(key, permits(3), lasting(ttl))
		}
		e.release(append(leases, released)...)
	}},
	{"a permit that nobody receives delays others by the claim window", func(e *env, key string) {
		other := e.member().lease(key, permits(2))
		e.unreceived(key, permits(2))
		e.release(other)
	}},
	{"permits that were taken away are lost, and as many are granted", func(e *env, key string) {
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
		e.release(next...)
		e.release(e.granted(c))
	}},
	{"holders of permits learn that another instance waits", func(e *env, key string) {
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
		e.release(held...)
	}},
	{"a waiter for a permit survives a cut, or finds its place lost", func(e *env, key string) { e.cutPlace(key, 2*e.ttl, permits(1), lasting(e.ttl)) }},
	// Each caller has its own, as with an exclusive lease: a store can tell one from the next.
	{"permits have fences of their own", func(e *env, key string) {
		d := e.drawn()
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
		e.release(leases...)
		writer, places := e.member().lease(key), e.queue(key, 3, permits(3))
		above := e.fence(writer)
		e.release(writer)
		for i, p := range places { // one release lets them all in, and each has its own
			leases[i] = e.granted(p)
			d.draw(leases[i], above, 3)
		}
		e.release(leases...)
	}},
	{"fences of permits lie between those of exclusive leases", func(e *env, key string) {
		last := uint64(0)
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
			e.release(leases[0], third)
			last = max(d.highest[leases[0]], d.highest[third])
		}
	}},
	// A holder that was paused past its permit goes on with a fence, and a store must be able to refuse it.
	{"a lost permit draws no fence above those of later leases", func(e *env, key string) {
		beside := e.member().lease(key, permits(2))
		stale, _ := e.member().brief(key, permits(2))
		permit, next := e.member().ask(key, permits(2)), e.member().place(key) // queued, unless the permit has expired already
		e.letExpire(stale)
		l := permit()
		if l == nil {
			return
		}
		e.stale(stale, e.fence(l))
		e.release(l, beside)
		l = e.granted(next)
		e.stale(beside, e.fence(l))
		e.release(l)
	}},
	// Some ask for all: a drain under load.
	{"never too many permits under load", func(e *env, key string) {
		e.takeTurns(key, 3, false, func(rnd *rand.Rand) how {
			if limit := 1 + rnd.IntN(3); rnd.IntN(10) > 0 {
				return permits(limit)
			}
			return exclusive
		})
	}},
	{"never too many permits under load with prev", func(e *env, key string) { e.takeTurns(key, 3, true, always(permits(3))) }},
	{"canceling and leaving permits at any time leaves nothing", func(e *env, key string) {
		e.enterAndLeave(key, func(rnd *rand.Rand) how { return permits(1 + rnd.IntN(3)) })
	}},
})

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
