package locktest

import (
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

var cutCases = []Case{
	{"without network every call returns ErrUnavailable", cutCalls},
	{"without network a lease ends by the holder's own clock", cutHolder},
	{"a short network failure costs no lease", cutShort},
	{"a release without network is carried out later", cutRelease},
	{"a place outlasts a network failure or is reported lost", cutPlace},
	{"a place without heartbeats is granted or reported lost", cutHeartbeats},
	{"leaving without network leaves nothing for long", cutLeave},
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
	e.eventually("the service is back", func() bool {
		ctx, cancel := timely()
		defer cancel()
		return e.Backend.Ping(ctx) == nil
	})
}

func cutCalls(e *env) {
	key, m := e.key("k"), e.member()
	heal := e.cut()
	ctx, cancel := timely()
	defer cancel()
	if _, _, err := m.enter(ctx, key, lasting(e.ttl)); !errors.Is(err, distributed.ErrUnavailable) {
		e.Errorf("Enter: %v; want ErrUnavailable", err)
	}
	if err := m.backend.Ping(ctx); !errors.Is(err, distributed.ErrUnavailable) {
		e.Errorf("Ping: %v; want ErrUnavailable", err)
	}
	heal()
	e.back()
	e.free(key)
}

func cutHolder(e *env) {
	key := e.key("k")
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
	e.free(key)
}

func cutShort(e *env) {
	key, ttl := e.key("k"), 4*e.ttl
	l := e.member().lease(key, lasting(ttl))
	e.claimed(l, l.Until())
	heal := e.cut()
	time.Sleep(ttl * 2 / 5) // the renewal at T/3 fails
	heal()
	e.eventually("the lease is healthy again", l.Healthy)
	e.back()
	e.held(key, l)
	e.release(l)
	e.free(key)
}

func cutRelease(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	heal := e.cut()
	if err := e.tryRelease(l); !errors.Is(err, distributed.ErrUnavailable) {
		e.Errorf("Release: %v; want ErrUnavailable", err)
	}
	heal()
	e.back()
	e.free(key)
	if err := e.tryRelease(l); err != nil && !errors.Is(err, distributed.ErrLeaseLost) {
		e.Errorf("Release again: %v; want nil or ErrLeaseLost", err)
	}
}

func cutPlace(e *env) { e.cutPlace(e.ttl / 2) }

// The service may have dropped the waiter meanwhile.
func cutHeartbeats(e *env) { e.cutPlace(2*e.ttl, lasting(e.ttl)) }

func (e *env) cutPlace(gap time.Duration, hows ...how) {
	key := e.key("k")
	l := e.member().lease(key)
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
	e.free(key)
}

func cutLeave(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	p := e.member().place(key, lasting(e.ttl))
	heal := e.cut()
	ctx, cancel := timely()
	defer cancel()
	if err := p.Leave(ctx); err != nil && !errors.Is(err, distributed.ErrUnavailable) {
		e.Errorf("Leave: %v; want nil or ErrUnavailable", err)
	}
	heal()
	e.back()
	e.release(l)
	e.free(key)
	e.waiting(p)
}
