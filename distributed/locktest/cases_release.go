package locktest

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

var releaseCases = []Case{
	{"a second release is answered nil and touches nobody", func(e *env, key string) {
		a := e.member().lease(key)
		e.release(a)
		e.release(a)
		b := e.member().lease(key)
		e.release(a)
		e.held(key, b)
		p := e.member().place(key)
		e.release(a)
		e.waiting(p)
		e.passOn(b, p)
	}},
	{"a release of an expired lease touches nobody", func(e *env, key string) {
		stale := e.member().lease(key, lasting(e.ttl))
		p := e.member().place(key)
		e.letExpire(stale)
		l := e.granted(p)
		e.lostRelease(stale)
		e.held(key, l)
		e.lostRelease(stale)
		e.release(l)
	}},
	{"a release of a lease that was taken away touches nobody", func(e *env, key string) {
		robbed := e.member().lease(key)
		p := e.member().place(key)
		e.expire(key)
		l := e.granted(p)
		e.lostRelease(robbed) // its holder does not know yet
		e.held(key, l)
		e.release(l)
	}},
	// Locks are most often released by callers that have run out of time.
	{"a release whose caller has no time left goes on", func(e *env, key string) {
		l := e.member().lease(key)
		p := e.member().place(key)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.Release(ended) // nil, or an error because it could not wait
		e.release(e.granted(p))
	}},
	// The renewal and the release cross; a renewal that arrives second must not create the lease again.
	{"a release during a renewal is final", func(e *env, key string) {
		rnd := e.random()
		for i := range 12 { // the renewal has not been sent, is under way, or was answered, on fast services and on slow ones
			e.release(e.member().renewed(key, upTo(rnd, 50*time.Microsecond<<i)))
			e.release(e.member().lease(key, noWait)) // at once
		}
		time.Sleep(e.ttl / 3)
		e.release(e.member().lease(key, noWait)) // at once
	}},
	{"started releases are answered to the watcher", func(e *env, key string) {
		l, w := e.watch(e.member().lease(key))
		p := e.member().place(key)
		at := l.StartRelease()
		e.release(e.granted(p))
		if !at {
			if err := <-w.released; err != nil {
				e.Errorf("LeaseReleased received %v; want nil", err)
			}
		}
		e.blink()
		if len(w.lost) > 0 || gone(l) {
			e.Errorf("a released lease was reported lost")
		}
	}},
}

var prevCases = []Case{
	{"prev is released in the same exchange", func(e *env, key string) {
		m := e.member()
		first := m.lease(key)
		second := m.lease(key, prev(first))
		e.held(key, second)
		e.release(first) // a duplicate by now
		e.held(key, second)
		e.release(second)
	}},
	{"prev does not pass the queue", func(e *env, key string) {
		m := e.member()
		l := m.lease(key)
		other := e.member().place(key)
		own := m.place(key, prev(l))
		l = e.granted(other)
		e.waiting(own)
		e.passOn(l, own)
	}},
	{"prev is released also when NoWait is refused", func(e *env, key string) {
		m := e.member()
		l := m.lease(key)
		l = m.lease(key, prev(l), noWait)
		p := e.member().place(key)
		m.refused(key, prev(l))
		e.release(e.granted(p))
	}},
	{"prev that was lost touches nobody", func(e *env, key string) {
		m := e.member()
		stale := m.lease(key, lasting(e.ttl))
		other := e.member().place(key)
		e.letExpire(stale)
		l := e.granted(other)
		own := m.place(key, prev(stale))
		m.refused(key, prev(stale))
		e.held(key, l)
		e.passOn(l, own)
	}},
	// Its holder does not know yet. The answer to Enter says so, whether the lock is free then or another's.
	{"prev that was taken away is not reported as released", func(e *env, key string) {
		m := e.member()
		first := m.lease(key)
		e.expire(key)
		second := m.lease(key, prev(first))
		e.lostRelease(first)
		e.expire(key)
		l := e.member().lease(key)
		own := m.place(key, prev(second), lasting(e.ttl))
		e.lostRelease(second)
		e.expire(key)
		e.lostRelease(l)
		e.release(e.granted(own))
		shares := m.lease(key, shared)
		e.expire(key)
		l = m.lease(key, prev(shares))
		e.lostRelease(shares)
		e.release(l)
	}},
	{"prev that was released touches nobody", func(e *env, key string) {
		m := e.member()
		stale := m.lease(key)
		other := e.member().place(key)
		e.release(stale)
		l := e.granted(other)
		own := m.place(key, prev(stale))
		e.held(key, l)
		e.passOn(l, own)
	}},
	// Whichever of the two is served first, the lease was released.
	{"prev whose release is under way is not reported as lost", func(e *env, key string) {
		m := e.member()
		l := m.lease(key)
		for range 50 {
			answer := make(chan error)
			go func() { answer <- try(l.Release) }()
			next := m.lease(key, prev(l))
			if err := <-answer; err != nil {
				e.Fatalf("Release: %v", err)
			}
			l = next
		}
		e.release(l)
	}},
	{"prev can be of the other mode", func(e *env, key string) {
		m := e.member()
		reader := m.lease(key, shared)
		writer := m.lease(key, prev(reader))
		e.member().refused(key, shared)
		reader = m.lease(key, shared, prev(writer))
		other := e.member().lease(key, shared)
		own := m.place(key, prev(reader)) // the other reader still holds it
		e.passOn(other, own)
	}},
	{"prev is found inside a decorator", func(e *env, key string) {
		m := e.member()
		var l distributed.Lease = &decorated{&decorated{m.lease(key)}}
		waiting := e.member().place(key)
		back := m.place(key, prev(l))
		e.release(e.granted(waiting))
		l = &decorated{e.granted(back)}
		e.release(m.lease(key, prev(l)))
	}},
	{"a loop is never delayed by its own earlier release", func(e *env, key string) {
		m := e.member()
		l, _ := e.watch(m.lease(key))
		for i := range 200 {
			if i%2 == 0 {
				l.StartRelease() // under way at the same time as the next request
			}
			l, _ = e.watch(m.lease(key, prev(l)))
		}
		e.release(l)
	}},
}

// renewed gets a lease whose renewal began so long ago.
func (m *member) renewed(key string, ago time.Duration) distributed.Lease {
	m.Helper()
	l := m.lease(key)
	l.RenewBy(time.Now())
	time.Sleep(ago)
	return l
}

// decorated is a decorated lease: see distributed.As.
type decorated struct{ distributed.Lease }

func (d *decorated) Unwrap() distributed.Lease { return d.Lease }

// expire makes the service forget the owner, or skips the case.
func (e *env) expire(key string) {
	e.Helper()
	if e.Expire == nil {
		e.Skipf("no Expire")
	}
	e.Expire(key)
}
