package tenure_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
)

func TestPlaceIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		require.Equal(t, "waiting waiting", states(a, b))
		fb.place(0).granted <- fb.grant()
		synctest.Wait()
		require.Equal(t, "in waiting", states(a, b))
		require.False(t, a.use.Handoff())
		a.leave()
		require.True(t, b.use.Handoff())
		b.leave()
		require.Zero(t, fb.place(0).left(), "a granted place is not left")
		n, _ := fb.enters()
		require.Equal(t, 1, n)
		f.close()
	})
}

// stopWaiting runs test for the ways in which a caller's wait at the backend ends.
func stopWaiting(t *testing.T, test func(t *testing.T, f *fixture, fb *fakeBackend, a *caller, end func() string)) {
	bubble(t, "canceled", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues)
		a := f.arrive(exclusive)
		test(t, f, fb, a, func() string { a.quit(); return "canceled" })
	})
	bubble(t, "timed out", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues)
		a := f.arriveAs(tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Second)})
		test(t, f, fb, a, func() string { time.Sleep(time.Second); synctest.Wait(); return "timeout" })
	})
}

func TestPlaceIsInherited(t *testing.T) {
	stopWaiting(t, func(t *testing.T, f *fixture, fb *fakeBackend, a *caller, end func() string) {
		b := f.arrive(exclusive)
		want := end()
		require.Equal(t, want+" waiting", states(a, b))
		fb.place(0).granted <- fb.grant()
		synctest.Wait()
		require.Equal(t, "in", b.state())
		b.leave()
		n, _ := fb.enters()
		require.Equal(t, 1, n, "it waited in the place of the first")
		require.Zero(t, fb.place(0).left())
		f.close()
	})
}

func TestPlaceIsLeft(t *testing.T) {
	t.Run("when nobody waits", func(t *testing.T) {
		stopWaiting(t, func(t *testing.T, f *fixture, fb *fakeBackend, a *caller, end func() string) {
			require.Equal(t, end(), a.state())
			require.Equal(t, 1, fb.place(0).left())
			require.False(t, f.inUse())
			f.close()
		})
	})
	t.Run("when the next caller has the other mode", func(t *testing.T) {
		stopWaiting(t, func(t *testing.T, f *fixture, fb *fakeBackend, a *caller, end func() string) {
			b := f.arrive(shared)
			end()
			require.Equal(t, 1, fb.place(0).left())
			require.Equal(t, "in", b.state())
			n, req := fb.enters()
			require.Equal(t, 2, n)
			require.Equal(t, shared, req.Mode)
			b.leave()
			f.close()
		})
	})
}

// The key is kept, and Close waits, until the backend has answered that a place was left.
// A place that is being left, or the grant that it gets meanwhile, would refuse its own instance.
func TestNoWaitIsNotRefusedByAPlaceThatIsBeingLeft(t *testing.T) {
	enter := func(t *testing.T, test func(f *fixture, fb *fakeBackend, b *caller, answer func())) {
		fb, answer := new(fakeBackend), make(chan struct{})
		f := newFixture(t, fb)
		fb.answerWith(queues)
		a := f.arrive(exclusive)
		fb.place(0).answering = answer
		a.quit()
		b := f.arriveAs(tenure.Ask{Mode: exclusive, NoWait: true})
		require.Equal(t, "canceled waiting", states(a, b))
		test(f, fb, b, func() { close(answer); synctest.Wait() })
		f.close()
	}
	bubble(t, "it waits until it is left", func(t *testing.T) {
		enter(t, func(_ *fixture, _ *fakeBackend, b *caller, answer func()) {
			answer()
			require.Equal(t, "in", b.state())
			b.leave()
		})
	})
	bubble(t, "and any other", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		var answers []func()
		for i := range 2 {
			fb.answerWith(queues)
			a := f.arrive(exclusive)
			answering := make(chan struct{})
			fb.place(i).answering = answering
			answers = append(answers, sync.OnceFunc(func() { close(answering); synctest.Wait() }))
			defer answers[i]()
			a.quit()
		}
		b := f.arriveAs(tenure.Ask{Mode: exclusive, NoWait: true})
		answers[1]()
		require.Equal(t, "waiting", b.state())
		answers[0]()
		require.Equal(t, "in", b.state())
		b.leave()
		f.close()
	})
	bubble(t, "for a sixth of T", func(t *testing.T) {
		enter(t, func(_ *fixture, fb *fakeBackend, b *caller, answer func()) {
			fb.answerWith(fails(distributed.ErrHeld))
			time.Sleep(ttl / 6)
			synctest.Wait()
			require.Equal(t, "held", b.state())
			answer()
		})
	})
	bubble(t, "or until it gives up", func(t *testing.T) {
		enter(t, func(_ *fixture, fb *fakeBackend, b *caller, answer func()) {
			fb.answerWith(hangs)
			b.quit()
			require.Equal(t, "canceled", b.state())
			answer()
		})
	})
}

func TestLeavingAPlaceIsAwaited(t *testing.T) {
	for name, behind := range map[string]bool{"when nobody waits": false, "when the next caller has the other mode": true} {
		bubble(t, name, func(t *testing.T) {
			fb, answering := new(fakeBackend), make(chan struct{})
			f := newFixture(t, fb)
			fb.answerWith(queues)
			a := f.arrive(exclusive)
			fb.place(0).answering = answering
			var b *caller
			if behind {
				b = f.arrive(shared)
			}
			a.quit()
			if behind {
				require.Equal(t, "in", b.state())
				b.leave()
			}
			f.shut()
			require.Equal(t, 1, fb.place(0).left())
			require.True(t, f.inUse())
			require.False(t, f.drained())
			close(answering)
			synctest.Wait()
			require.False(t, f.inUse())
			f.close()
			require.Empty(t, f.failures())
		})
	}
	bubble(t, "for at most the claim window", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues)
		a := f.arrive(exclusive)
		fb.place(0).answering = make(chan struct{})
		a.quit()
		time.Sleep(distributed.ClaimWindow(ttl) - 1)
		synctest.Wait()
		require.True(t, f.inUse())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.False(t, f.inUse())
		require.Equal(t, []error{context.DeadlineExceeded}, f.failures())
		f.close()
	})
	bubble(t, "also with a lease that lingers, or whose release is awaited", func(t *testing.T) {
		for name, end := range map[string]func(*caller){
			"lingers": func(c *caller) { c.leave(); c.use.Lease().(*fakeLease).lose() },
			"waits":   func(c *caller) { _ = c.leaveAndWait(context.Background()) },
		} {
			fb, answering := new(fakeBackend), make(chan struct{})
			f := newFixture(t, fb, lingering(time.Second))
			fb.answerWith(queues)
			a, b := f.arrive(exclusive), (*caller)(nil)
			fb.place(0).answering = answering
			b = f.arrive(shared)
			a.quit()
			end(b)
			f.shut()
			synctest.Wait()
			require.False(t, f.drained(), name)
			close(answering)
			f.close()
		}
	})
}

// A grant that arrives as its receiver stops waiting lies in the place.
func TestGrantLyingInAPlace(t *testing.T) {
	bubble(t, "is inherited", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues)
		a := f.arrive(exclusive)
		b := f.arrive(exclusive)
		a.cancel()
		fb.place(0).granted <- fb.grant() // with a on its way out
		synctest.Wait()
		if a.state() == "in" { // the grant came first after all
			a.leave()
		}
		require.Equal(t, "in", b.state())
		b.leave()
		n, _ := fb.enters()
		require.Equal(t, 1, n)
		require.Equal(t, 1, fb.lease(0).releases())
		f.close()
	})
	bubble(t, "is released with it", func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		here, there := newFixture(t, backend), newFixture(t, backend, named("there"))
		a := there.arrive(exclusive)
		b := here.arrive(exclusive)
		require.Equal(t, "in waiting", states(a, b))
		b.cancel()
		a.leave() // to b, on its way out
		if b.state() == "in" {
			b.leave()
		}
		c := there.arrive(exclusive)
		require.Equal(t, "in", c.state(), "the lock is free")
		c.leave()
		here.close()
		there.close()
	})
	bubble(t, "serves a NoWait caller, which gets ErrHeld without it", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues)
		at, ctx := f.group.New(key, 0, nil), t.Context()
		var use tenure.Use
		now := tenure.Ask{Mode: exclusive, NoWait: true}
		soon := tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Second)}
		require.Equal(t, tenure.ErrTimeout, at.Begin(ctx, &use, soon))
		require.Equal(t, distributed.ErrHeld, at.Begin(ctx, &use, now))
		fb.place(0).granted <- fb.grant()
		require.NoError(t, at.Begin(ctx, &use, now))
		require.Same(t, fb.lease(0), use.Lease())
		f.close()
	})
}

func TestLostPlaceEntersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, handoffs(0))
		fb.answerWith(grants, queues, queues, grants)
		first, a := f.arrive(exclusive), f.arrive(exclusive)
		first.leave()
		_, req := fb.enters()
		require.Same(t, fb.lease(0), req.Prev)
		close(fb.place(0).granted)
		synctest.Wait()
		n, req := fb.enters()
		require.Equal(t, 3, n)
		require.Nil(t, req.Prev, "a released lease is not named again")
		require.Equal(t, "waiting", a.state())
		close(fb.place(1).granted)
		synctest.Wait()
		require.Equal(t, "in", a.state())
		a.leave()
		require.Zero(t, fb.place(0).left()+fb.place(1).left())
		f.close()
	})
}

func TestLostPlaceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(queues, fails(distributed.ErrUnavailable))
		a := f.arrive(exclusive)
		close(fb.place(0).granted)
		synctest.Wait()
		require.Equal(t, "unavailable", a.state())
		require.Zero(t, fb.place(0).left(), "there is no place to leave")
		f.close()
	})
}

func TestEnterEnds(t *testing.T) {
	bubble(t, "at the deadline", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(hangs)
		start := time.Now()
		c := f.newCaller(tenure.Ask{Mode: exclusive, Deadline: start.Add(time.Second)})
		err := c.enter()
		require.ErrorIs(t, err, tenure.ErrTimeout)
		require.ErrorIs(t, err, distributed.ErrUnavailable, "nothing was answered")
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, f.inUse())
		f.close()
	})
	bubble(t, "when the caller cancels", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(hangs)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		a.quit()
		require.Equal(t, "in", b.state())
		b.leave()
		f.close()
	})
	bubble(t, "at once for a NoWait caller", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(fails(distributed.ErrHeld))
		a := f.arriveAs(tenure.Ask{Mode: exclusive, NoWait: true})
		_, req := fb.enters()
		require.True(t, req.NoWait)
		require.Equal(t, "held", a.state())
		require.False(t, f.inUse())
		f.close()
	})
}
