package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
)

var closeCases = []Case{
	{"after Close every call returns ErrClosed", func(e *env, key string) {
		m := e.memberOf(e.Backend)
		l := m.lease(key)
		e.close()
		ctx, cancel := timely()
		defer cancel()
		_, _, entered := m.try(key)
		_, _, asked := m.try(e.key("another"), noWait)
		calls := map[string]error{
			"Enter": entered, "Enter with NoWait": asked, "Ping": e.Backend.Ping(ctx), "Release": l.Release(ctx),
		}
		if p, ok := distributed.ProberOf(e.Backend); ok {
			calls["Probe"] = p.Probe(ctx, distributed.Probe{Key: key, TTL: e.ttl})
		}
		for call, err := range calls {
			if !errors.Is(err, distributed.ErrClosed) {
				e.Errorf("%s: %v; want ErrClosed", call, err)
			}
		}
	}},
	// A caller must not go on waiting for a closed backend.
	{"Close ends places", func(e *env, key string) {
		e.memberOf(e.Backend).lease(key)
		p := e.memberOf(e.Backend).place(key)
		e.close()
		select {
		case _, granted := <-p.Granted():
			if granted {
				e.Errorf("Close granted a lease")
			}
		case <-time.After(patience):
			e.Errorf("the place was not ended")
		}
		if err := p.Leave(context.Background()); err != nil && !errors.Is(err, distributed.ErrClosed) {
			e.Errorf("Leave: %v; want nil or ErrClosed", err)
		}
	}},
	{"Close lets leases expire", func(e *env, key string) {
		l, w := e.watch(e.memberOf(e.Backend).lease(key, lasting(e.ttl)))
		e.close()
		e.notified("lost", w.lost, l)
		e.lost(l)
		if early := distributed.Left(time.Now(), l.Until()); early > 0 {
			e.Errorf("the lease was reported lost %v before Until", early)
		}
		if len(e.open) > 1 {
			e.free(key) // for the other process
		}
	}},
	{"Close returns under load", func(e *env, key string) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.together(loadMembers, func(m *member, rnd *rand.Rand) {
				m.backend = e.Backend
				for m.enterUntilClosed(key, rnd) {
					time.Sleep(upTo(rnd, e.ttl/40))
				}
			})
		}()
		time.Sleep(e.ttl / 8)
		e.close()
		select {
		case <-ended:
		case <-time.After(patience):
			e.Fatalf("a call was still under way %v after Close", patience)
		}
	}},
}

func (e *env) close() {
	e.Helper()
	e.closed = true
	for range 2 { // repeated calls do nothing
		if err := e.Backend.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	}
}

// enterUntilClosed takes the lock once, and reports false when the backend is closed.
func (m *member) enterUntilClosed(key string, rnd *rand.Rand) bool {
	ctx, cancel := timely()
	defer cancel()
	l, p, err := m.enter(ctx, key)
	if p != nil {
		select {
		case l = <-p.Granted():
		case <-ctx.Done():
		}
		if l == nil {
			return true // lost; the next Enter says why
		}
	}
	if l != nil {
		time.Sleep(upTo(rnd, m.ttl/40))
		err = l.Release(ctx)
	}
	if err != nil && !errors.Is(err, distributed.ErrClosed) {
		m.Errorf("%v; want nil or ErrClosed", err)
	}
	return err == nil
}
