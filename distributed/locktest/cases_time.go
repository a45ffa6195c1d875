package locktest

import (
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

var noticeCases = []Case{
	{"a holder learns that another instance waits", func(e *env, key string) {
		l, w := e.watch(e.member().lease(key))
		e.member().refused(key) // asking is not waiting
		e.blink()
		if l.Contended() {
			e.Errorf("a lease is contended though no instance waits")
		}
		if l.Wanted() {
			e.notified("wanted", w.contended, l)
		}
		if len(w.contended) > 0 {
			e.Errorf("the watcher was notified of nothing")
		}
		p := e.member().place(key)
		e.contended(l, w)
		another := e.member().place(key)
		e.blink()
		if len(w.contended) > 0 {
			e.Errorf("the watcher was notified twice that the lease is contended")
		}
		e.leave(p)
		e.blink()
		if !l.Contended() {
			e.Errorf("a lease is not contended though one of two waiters is left")
		}
		e.passOn(l, another)
	}},
	// A wish that is gone must not keep the holder's own callers out for longer than until its next renewal.
	{"a holder learns that nobody waits any more", func(e *env, key string) {
		for _, mode := range []how{lasting(e.ttl), shared} {
			l, w := e.watch(e.member().lease(key, mode, lasting(e.ttl)))
			for range 2 { // it may come back, and go again
				p := e.member().place(key)
				e.contended(l, w)
				e.leave(p)
				e.eventually("the lease is not contended any more", func() bool { return !l.Contended() })
				e.notified("not contended any more", w.contended, l)
			}
			e.release(l)
			e.free(key)
		}
	}},
	// The notice may come before the grant is used, or even received.
	{"a holder that was queued learns that others still wait", func(e *env, key string) {
		l := e.member().lease(key)
		first, second := e.member().place(key), e.member().place(key)
		e.release(l)
		watched, w := e.watch(e.granted(first))
		e.contended(watched, w)
		e.release(watched)
		l = e.granted(second)
		e.blink()
		if l.Contended() {
			e.Errorf("the last one of the queue is contended")
		}
		e.release(l)
	}},
	{"all readers learn that a writer waits", func(e *env, key string) {
		a, b := e.member().lease(key, shared), e.member().lease(key, shared)
		p := e.member().place(key)
		e.eventually("both readers are contended", func() bool { return a.Contended() && b.Contended() })
		e.release(a)
		e.passOn(b, p)
	}},
	// A backend that says in its refusal that it tells the holders does: each of them is wanted from then on, and not contended. The next
	// lease is not wanted by what was refused before.
	{"holders that the backend tells of a refusal are wanted, and know it once", func(e *env, _ string) {
		holders := map[string][]how{"exclusive": {lasting(long)}, "shared": {shared, shared}}
		if !e.NoPermits {
			holders["permits"] = []how{permits(2), permits(2)}
		}
		for name, hows := range holders {
			key := e.key(name)
			for again := range 2 {
				all := make([]distributed.Lease, len(hows))
				told := make([]*witness, len(hows))
				for i, how := range hows {
					all[i], told[i] = e.watch(e.member().lease(key, how))
					if all[i].Wanted() && again == 0 {
						e.Skipf("the backend's leases are wanted from the beginning")
					}
					if all[i].Wanted() {
						e.Fatalf("%s: a fresh lease is wanted", name)
					}
				}
				err := e.member().refusal(key)
				held, ok := errors.AsType[*distributed.HeldError](err)
				if hears := all[0].HearsRefusals(); hears != (ok && held.Told) {
					e.Fatalf("%s: that its lease hears of refusals is %v, and a refusal says the opposite", name, hears)
				}
				if !ok || !held.Told {
					e.Skipf("the backend does not tell its holders")
				}
				for i, l := range all {
					e.eventually(name+": the lease is wanted", l.Wanted)
					e.notified("wanted", told[i].contended, l)
					if l.Contended() {
						e.Errorf("%s: a lease is contended though no instance waits", name)
					}
				}
				e.member().refused(key)
				e.blink()
				for i, l := range all {
					if len(told[i].contended) > 0 {
						e.Errorf("%s: the watcher was notified twice that the lease is wanted", name)
					}
					e.release(l)
				}
			}
		}
	}},
	{"a watcher receives earlier events", func(e *env, key string) {
		l := e.member().lease(key, lasting(e.ttl))
		p := e.member().place(key)
		e.eventually("the lease is contended", l.Contended)
		e.letExpire(l)
		watched, w := e.watch(l)
		e.notified("lost", w.lost, watched)
		e.contended(watched, w)
		e.release(e.granted(p))
	}},
	// A service can lose a lease: an operator deletes it, or it restarts without its data.
	{"a holder learns that its lease was taken away", func(e *env, key string) {
		l, w := e.watch(e.member().lease(key, lasting(e.ttl)))
		p := e.member().place(key)
		e.expire(key)
		next := e.granted(p)
		e.notified("lost", w.lost, l)
		e.lost(l)
		e.lostRelease(l)
		e.held(key, next)
		e.blink()
		if len(w.lost) > 0 {
			e.Errorf("the watcher was notified twice of one loss")
		}
		e.release(next)
	}},
}

var timeCases = []Case{
	{"a held lease outlives its TTL", func(e *env, key string) {
		ttl := 2 * e.ttl
		l := e.member().lease(key, lasting(ttl))
		for start := time.Now(); time.Since(start) < 2*ttl; time.Sleep(ttl / 5) {
			e.held(key, l)
			if distributed.Over(time.Now(), l.Until()) {
				e.Fatalf("a held lease has expired by its Until")
			}
		}
		e.release(l)
	}},
	{"a fresh lease lasts for the claim window, then for T", func(e *env, key string) {
		ttl := 4 * e.ttl
		l := e.member().lease(key, lasting(ttl))
		entered, until := time.Now(), l.Until()
		if most := entered.Add(distributed.ClaimWindow(ttl)); until.After(most) {
			e.Errorf("a fresh lease is said to last %v; want at most the claim window %v",
				until.Sub(entered), distributed.ClaimWindow(ttl))
		}
		e.claimed(l, until)
		e.release(l)
	}},
	{"a fresh grant that is received is claimed", func(e *env, key string) {
		l := e.member().lease(key)
		p := e.member().place(key, lasting(4*e.ttl))
		e.release(l)
		l = e.granted(p)
		e.claimed(l, l.Until())
		e.held(key, l)
		e.release(l)
	}},
	// An unread grant that is not claimed has not failed. The receiver comes late, but within the claim window.
	{"a grant that is received late is healthy, and claimed", func(e *env, key string) {
		ttl := 4 * e.ttl
		l := e.member().lease(key)
		p := e.member().place(key, lasting(ttl))
		e.release(l)
		e.eventually("the grant arrives", func() bool { return len(p.Granted()) > 0 })
		time.Sleep(distributed.ClaimWindow(ttl) * 7 / 10)
		l = e.granted(p)
		e.held(key, l)
		e.claimed(l, l.Until())
		e.release(l)
	}},
	// The receiver of a grant can be paused, or gone. The lease must not be kept alive for it.
	{"a grant that nobody receives delays others by the claim window", func(e *env, key string) { e.unreceived(key) }},
	{"an abandoned lease expires, and not before Until", func(e *env, key string) {
		l, w := e.watch(e.member().lease(key, lasting(e.ttl)))
		p := e.member().place(key)
		l.Abandon()
		next := e.granted(p)
		if early := distributed.Left(time.Now(), l.Until()); early > 0 {
			e.Errorf("the next one was let in %v before the lease expired", early)
		}
		e.notified("lost", w.lost, l)
		e.lost(l)
		e.lostRelease(l)
		e.held(key, next)
		e.release(next)
	}},
	{"an abandoned reader expires alone", func(e *env, key string) {
		stale := e.member().lease(key, shared, lasting(e.ttl))
		l := e.member().lease(key, shared)
		p := e.member().place(key)
		e.letExpire(stale)
		e.lostRelease(stale)
		e.waiting(p)
		e.held(key, l)
		e.passOn(l, p)
	}},
}

// claimed waits until a lease is extended beyond its claim window, which must happen before that has passed.
func (e *env) claimed(l distributed.Lease, window time.Time) {
	e.Helper()
	e.eventually("the lease is claimed", func() bool { return l.Until().After(window) })
	if gone(l) {
		e.Errorf("a lease was lost before it was claimed")
	}
}

func (e *env) unreceived(key string, hows ...how) {
	ttl := 4 * e.ttl
	l := e.member().lease(key, hows...)
	absent := e.member().place(key, append(hows, lasting(ttl))...)
	next := e.member().place(key, hows...)
	start := time.Now()
	e.release(l)
	l = e.granted(next)
	if took, most := time.Since(start), distributed.ClaimWindow(ttl)+ttl/3; took > most {
		e.late("a grant that nobody received delayed the next one by %v; want at most %v", took, most)
	}
	if late, ok := <-absent.Granted(); ok { // closed is right as well
		e.lost(late)
		e.lostRelease(late)
	}
	e.held(key, l)
	e.release(l)
}
