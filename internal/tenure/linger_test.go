package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

const linger = time.Second

// idle runs a test with an instance whose lease lingers.
func idle(t *testing.T, name string, test scripted) {
	with(lingering(linger)).over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
		f.arrive(exclusive).leave()
		require.Zero(t, fb.lease(0).releases())
		require.True(t, f.inUse())
		test(t, f, fb)
	})
}

func TestLinger(t *testing.T) {
	idle(t, "the next caller finds the lease", func(t *testing.T, f *fixture, fb *fakeBackend) {
		time.Sleep(linger - 1)
		a := f.arrive(exclusive)
		require.True(t, a.use.Handoff())
		require.False(t, a.tenure.Snapshot().Lingering)
		time.Sleep(linger)
		require.Zero(t, fb.lease(0).releases(), "it is in use")
		a.leave()
		sleep(linger - 1)
		require.Zero(t, fb.lease(0).releases(), "it lingers anew")
		sleep(time.Nanosecond)
		f.requireReleased(fb.lease(0))
	})
	for name, event := range map[string]func(*fakeLease){"waits": (*fakeLease).contend, "was refused": (*fakeLease).want} {
		idle(t, "it is released when another instance "+name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			event(fb.lease(0))
			synctest.Wait()
			f.requireReleased(fb.lease(0))
		})
	}
	used := with(lingering(linger), longest(time.Millisecond))
	used.over(t, "one that another instance was refused while it was used serves those in line, and does not linger",
		func(t *testing.T, f *fixture, fb *fakeBackend) {
			a, b := f.arrive(exclusive), f.arrive(exclusive)
			fb.lease(0).want()
			time.Sleep(2 * time.Millisecond)
			a.leave()
			require.Equal(t, "in", b.state())
			require.True(t, b.use.Handoff(), "nobody waits, so the budget does not count")
			require.Zero(t, fb.lease(0).releases())
			b.leave()
			f.requireReleased(fb.lease(0))
		})
	idle(t, "the key is kept until the release is answered, and no longer", func(t *testing.T, f *fixture, fb *fakeBackend) {
		answer := delayRelease(fb.lease(0), nil)
		fb.lease(0).contend()
		synctest.Wait()
		require.True(t, f.inUse())
		answer()
		require.False(t, f.inUse())
	})
	idle(t, "it is released on Close", func(t *testing.T, f *fixture, fb *fakeBackend) {
		f.close()
		require.Equal(t, 1, fb.lease(0).releases())
	})
	for name, before := range map[string]func(f *fixture, l *fakeLease){
		"closed":    func(f *fixture, l *fakeLease) { f.group.Close() },
		"wanted":    func(f *fixture, l *fakeLease) { l.contend() },
		"unhealthy": func(f *fixture, l *fakeLease) { l.set(func(l *fakeLease) { l.unhealthy = true }) },
		"short":     func(f *fixture, l *fakeLease) { l.set(func(l *fakeLease) { l.until = time.Now().Add(ttl/3 - 1) }) },
	} {
		with(lingering(linger)).over(t, "no lingering: "+name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			a := f.arrive(exclusive)
			before(f, fb.lease(0))
			a.leave()
			require.Equal(t, 1, fb.lease(0).releases())
		})
	}
	with(lingering(linger)).over(t, "no lingering: awaited", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.NoError(t, f.arrive(exclusive).leaveAndWait(context.Background()))
		require.Equal(t, 1, fb.lease(0).releases())
	})
	idle(t, "a lost lease stops lingering", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.lease(0).lose()
		require.False(t, f.inUse())
		time.Sleep(linger)
		f.close()
		require.Zero(t, fb.lease(0).releases())
	})
	idle(t, "the next caller names a lease that does not serve as Prev", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.lease(0).set(func(l *fakeLease) { l.unhealthy = true })
		a := f.arrive(exclusive)
		require.Same(t, fb.lease(0), fb.last().Prev)
		sleep(linger) // its timer must not touch the later lease
		require.Equal(t, "in", a.state())
	})
	idle(t, "a caller that is not let in restarts the lingering", func(t *testing.T, f *fixture, fb *fakeBackend) {
		time.Sleep(linger / 2)
		c := f.newCaller(exclusively)
		c.cancel()
		require.Equal(t, context.Canceled, c.enter())
		sleep(linger - 1)
		require.Zero(t, fb.lease(0).releases())
		sleep(time.Nanosecond)
		f.requireReleased(fb.lease(0)) // it was pinned once
	})
}

// again has a caller come while the release of the last lease is under way, and returns the lease that it got.
func (f *fixture) again(ask tenure.Ask) *fakeLease {
	first := f.arriveAs(ask)
	answer := delayRelease(first.use.Lease().(*fakeLease), nil)
	first.leave()
	second := f.arriveAs(ask)
	answer()
	second.leave()
	synctest.Wait()
	return second.use.Lease().(*fakeLease)
}

// By default only the lease of a key in steady use lingers, where a refusal tells its holder, and no other instance has waited lately.
func TestAdaptiveLinger(t *testing.T) {
	steady := with(func(c *tenure.Config) { c.Linger, c.Adaptive = linger, true })
	steady.over(t, "a key that is asked for during its release", func(t *testing.T, f *fixture, fb *fakeBackend) {
		l := f.again(exclusively)
		require.Zero(t, l.releases())
		time.Sleep(linger - 1)
		a := f.arrive(exclusive)
		require.True(t, a.use.Handoff())
		a.leave()
		time.Sleep(linger - 1)
		require.Zero(t, l.releases(), "it lingers anew")
		sleep(time.Nanosecond)
		f.requireReleased(l)
		f.arrive(exclusive).leave()
		require.False(t, f.inUse(), "a use by itself")
	})
	steady.over(t, "not a key that is asked for after its release", func(t *testing.T, f *fixture, fb *fakeBackend) {
		for i := range 3 {
			f.arrive(exclusive).leave()
			require.Equal(t, 1, fb.lease(i).releases())
		}
	})
	steady.over(t, "not where a refusal does not tell", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.deaf = true
		require.Equal(t, 1, f.again(exclusively).releases())
	})
	steady.over(t, "not a permit's", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.Equal(t, 1, f.again(tenure.Ask{Mode: shared, Limit: 1}).releases())
	})
	for name, c := range map[string]struct {
		event func(*fakeLease)
		last  time.Duration
	}{
		"another instance has waited for": {(*fakeLease).contend, time.Second},
		"another instance was refused":    {(*fakeLease).want, 10 * time.Minute},
	} {
		steady.over(t, "not a key that "+name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			a := f.arrive(exclusive)
			c.event(fb.lease(0))
			a.leave()
			time.Sleep(c.last - 1)
			require.Equal(t, 1, f.again(exclusively).releases())
			time.Sleep(time.Nanosecond)
			require.Zero(t, f.again(exclusively).releases())
		})
	}
}

// hookedTurn calls before in the middle of Release, while the turn is still held.
type hookedTurn struct {
	*caller
	before func()
}

func (s *hookedTurn) Baton() *tenureOf { return s.turn.Baton() }
func (s *hookedTurn) Pin()             { s.turn.Pin() }
func (s *hookedTurn) Leave() bool      { s.before(); return s.turn.Leave() }

// An event that ends the lingering can come while the lease lingers already and the turn is still held. Then only the
// holder of the turn can act on it.
func TestLingerEndsWhileTheTurnIsHeld(t *testing.T) {
	for name, end := range map[string]func(f *fixture, l *fakeLease){
		"wanted":  func(f *fixture, l *fakeLease) { l.contend() },
		"closed":  func(f *fixture, l *fakeLease) { f.shut() },
		"refused": func(f *fixture, l *fakeLease) { l.want() },
		"its time has passed, as when the process was stopped": func(*fixture, *fakeLease) { sleep(linger) },
	} {
		with(lingering(linger)).over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			a := f.arrive(exclusive)
			a.tenure.End(&a.use, time.Now())
			a.turn.Pass()
			a.tenure.Release(&hookedTurn{a, func() { end(f, fb.lease(0)) }})
			f.requireReleased(fb.lease(0))
		})
	}
}

// A late end of lingering finds another tenure of the key, and must not prevent the end of that one's lingering.
func TestLateEndOfLingering(t *testing.T) {
	idle(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		var old *tenureOf
		f.queue.Each(func(_ string, _ int, of *tenureOf, _ int) { old = of })
		f.meanwhile = func() { // the old one's end has begun, and before it has the turn, its lease is lost
			f.meanwhile = nil
			fb.lease(0).lose()
			require.False(t, f.inUse())
			f.arrive(exclusive).leave()
			require.True(t, f.inUse(), "a later tenure lingers")
			f.hold = func() { fb.lease(1).contend() } // and is contended while the old one has the turn
		}
		old.EndLinger()
		f.requireReleased(fb.lease(1))
	})
}

// A tenure is reused for other keys, unless a timer may still fire late for the key it had.
func TestStateIsUsedAgain(t *testing.T) {
	with(lingering(linger)).over(t, "", func(t *testing.T, f *fixture, _ *fakeBackend) {
		plain := f.group.New(key, 0, nil)
		require.Same(t, plain, f.group.New("other", 0, plain))
		a := f.arrive(exclusive)
		a.leave()
		sleep(linger)
		require.False(t, f.inUse())
		require.NotSame(t, a.tenure, f.group.New("other", 0, a.tenure))
	})
}

func TestALingeringLeaseIsRenewedAndPassesToAnotherInstanceAtOnce(t *testing.T) {
	pair(t, "", func(t *testing.T, _ *memlock.Backend, here, there *fixture) {
		a := here.arrive(exclusive)
		a.leave()
		time.Sleep(3 * ttl)
		b := here.arrive(exclusive)
		require.Same(t, a.use.Lease(), b.use.Lease())
		b.leave()
		time.Sleep(3 * ttl)
		start := time.Now()
		require.Equal(t, "in", there.arrive(exclusive).state())
		require.Zero(t, time.Since(start))
	}, lingering(10*ttl))
}

// A caller that has had no time to use a lingering lease passes its lane on, to a fellow that waits at the backend.
func TestAFellowUsesALeaseThatLingers(t *testing.T) {
	idle(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		c := f.newCaller(exclusively)
		require.NoError(t, f.queue.Enter(c.ctx, &c.turn, key, local.Ask{}))
		c.tenure = c.turn.Baton()
		require.True(t, c.tenure.Join(&c.use, c.ask))
		require.False(t, c.tenure.Snapshot().Lingering)
		sleep(2 * linger)
		require.Zero(t, fb.lease(0).releases(), "it is in use")
		c.leave()
		sleep(linger)
		f.requireReleased(fb.lease(0))
	})
}

// An exclusive caller that gets its turn while a permit is on its way follows it. The permit, which would not wait, is not held up by the
// lease that lingers on the lane of the exclusive caller.
func TestAPermitThatWouldNotWaitIsNotHeldUpByADrainBehindIt(t *testing.T) {
	idle(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		p := f.newCaller(tenure.Ask{Mode: distributed.Shared, Limit: 2, NoWait: true})
		require.NoError(t, f.queue.Enter(p.ctx, &p.turn, key, local.Ask{Permits: 2, NoWait: true}))
		x := f.newCaller(exclusively)
		require.NoError(t, f.queue.Enter(x.ctx, &x.turn, key, local.Ask{}))
		require.True(t, x.turn.Early())
		x.ask.Early = true
		x.tenure, p.tenure = x.turn.Baton(), p.turn.Baton()
		done := make(chan error, 1)
		go func() { done <- x.tenure.Begin(x.ctx, &x.use, x.ask) }()
		synctest.Wait()
		require.Equal(t, 1, fb.lease(0).releases())
		began := time.Now()
		_ = p.tenure.Begin(p.ctx, &p.use, p.ask)
		require.Zero(t, time.Since(began))
		p.leave()
		<-done
		x.leave()
	})
}
