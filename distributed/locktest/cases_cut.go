package locktest

import (
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

var cutCases = []Case{
	{"without network every call returns ErrUnavailable", func(e *env, key string) {
		m := e.member()
		heal := e.cut()
		if _, _, err := m.try(key, lasting(e.ttl)); !errors.Is(err, distributed.ErrUnavailable) {
			e.Errorf("Enter: %v; want ErrUnavailable", err)
		}
		if err := try(m.backend.Ping); !errors.Is(err, distributed.ErrUnavailable) {
			e.Errorf("Ping: %v; want ErrUnavailable", err)
		}
		heal()
		e.back()
	}},
	{"without network a lease ends by the holder's own clock", func(e *env, key string) {
		l, w := e.watch(e.member().lease(key, lasting(e.ttl)))
		e.claimed(l, l.Until())
		heal := e.cut()
		defer heal()
		e.eventually("the lease is not healthy", func() bool { return !l.Healthy() })
		e.lost(l)
		if early := distributed.Left(time.Now(), l.Until()); early > 0 {
			e.Errorf("the lease was reported lost %v before Until", early)
		} else if -early > e.ttl {
			e.Errorf("the loss was noticed %v after Until", -early)
		}
		e.notified("lost", w.lost, l)
		if why := l.LostError(); why == nil || !errors.Is(why.Err, distributed.ErrUnavailable) || time.Since(why.At) > e.ttl {
			e.Errorf("the lease says why it was lost: %v; want ErrUnavailable, and when", why)
		}
		heal()
		e.back()
	}},
	{"a short network failure costs no lease", func(e *env, key string) {
		ttl := 4 * e.ttl
		l := e.member().lease(key, lasting(ttl))
		e.claimed(l, l.Until())
		heal := e.cut()
		time.Sleep(ttl * 2 / 5) // the renewal at T/3 fails
		heal()
		e.eventually("the lease is healthy again", l.Healthy)
		e.back()
		e.held(key, l)
		e.release(l)
	}},
	{"a release without network is carried out later", func(e *env, key string) {
		l := e.member().lease(key)
		heal := e.cut()
		if err := try(l.Release); !errors.Is(err, distributed.ErrUnavailable) {
			e.Errorf("Release: %v; want ErrUnavailable", err)
		}
		heal()
		e.back()
		e.free(key)
		if err := try(l.Release); err != nil && !errors.Is(err, distributed.ErrLeaseLost) {
			e.Errorf("Release again: %v; want nil or ErrLeaseLost", err)
		}
	}},
	{"a place outlasts a network failure or is reported lost", func(e *env, key string) { e.cutPlace(key, e.ttl/2) }},
	// The service may have dropped the waiter meanwhile.
	{"a place without heartbeats is granted or reported lost", func(e *env, key string) { e.cutPlace(key, 2*e.ttl, lasting(e.ttl)) }},
	{"leaving without network leaves nothing for long", func(e *env, key string) {
		l := e.member().lease(key)
		p := e.member().place(key, lasting(e.ttl))
		heal := e.cut()
		if err := try(p.Leave); err != nil && !errors.Is(err, distributed.ErrUnavailable) {
			e.Errorf("Leave: %v; want nil or ErrUnavailable", err)
		}
		heal()
		e.back()
		e.release(l)
		e.free(key)
		e.waiting(p)
	}},
}

// cut cuts the network and returns a function that heals it, or skips the case.
func (e *env) cut() (heal func()) {
	e.Helper()
	if e.Cut == nil {
		e.Skipf("no Cut")
	}
	e.Cut(true)
	return func() { e.Cut(false) }
}

// back waits until the service answers.
func (e *env) back() {
	e.Helper()
	e.eventually("the service is back", func() bool { return try(e.Backend.Ping) == nil })
}

// cutPlace cuts the network for so long, below a holder and a waiter that ask alike.
func (e *env) cutPlace(key string, gap time.Duration, hows ...how) {
	l := e.member().lease(key, append(hows, lasting(long))...)
	p := e.member().place(key, hows...)
	heal := e.cut()
	time.Sleep(gap)
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
}
