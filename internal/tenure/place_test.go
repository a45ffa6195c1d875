package tenure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
)

func TestPlaceIsGranted(t *testing.T) {
	over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
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
		require.Equal(t, 1, fb.count())
	})
}

// One answer is for all who came before it (rule T13). It names the holder.
func TestAFullQueueRefusesAllWhoCame(t *testing.T) {
	over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		answers := make(chan struct{})
		fb.answerWith(func(*fakeBackend, context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
			<-answers
			return nil, nil, distributed.Held("other")
		})
		arrive := func() *caller { return f.arriveAs(tenure.Ask{Mode: exclusive, Most: 2, Came: time.Now()}) }
		a, b, patient := arrive(), arrive(), f.arrive(exclusive)
		require.Equal(t, 2, fb.last().QueueMost)
		sleep(time.Millisecond)
		close(answers)
		synctest.Wait()
		require.Equal(t, "full full in", states(a, b, patient))
		require.Equal(t, 2, fb.count())
		require.Zero(t, fb.last().QueueMost)

		late := arrive()
		require.Equal(t, "waiting", late.state())
		patient.leave()
		require.Equal(t, "in", late.state(), "its instance has the lock")
		require.Equal(t, 2, fb.count())
	})
	over(t, "later ones ask", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(fails(distributed.Held("other")))
		ask := tenure.Ask{Mode: exclusive, Most: 2, Came: time.Now()}
		holder := f.newCaller(ask)
		err := holder.enter()
		require.ErrorIs(t, err, tenure.ErrFull)
		held, ok := errors.AsType[*distributed.HeldError](err)
		require.True(t, ok)
		require.Equal(t, "other", held.Holder)
		require.Equal(t, "in", f.arriveAs(ask).state())
	})
}

// stopWaiting runs test for the ways in which the wait of caller a at the backend ends.
func stopWaiting(t *testing.T, test func(t *testing.T, f *fixture, fb *fakeBackend, end func())) {
	for want, end := range map[string]func(*caller){
		"canceled": (*caller).quit,
		"timeout":  func(*caller) { sleep(time.Second) },
	} {
		over(t, want, func(t *testing.T, f *fixture, fb *fakeBackend) {
			fb.answerWith(queues)
			ask := exclusively
			if want == "timeout" {
				ask.Deadline = time.Now().Add(time.Second)
			}
			a := f.arriveAs(ask)
			test(t, f, fb, func() {
				end(a)
				require.Equal(t, want, a.state())
			})
		})
	}
}

func TestPlaceIsInherited(t *testing.T) {
	stopWaiting(t, func(t *testing.T, f *fixture, fb *fakeBackend, end func()) {
		b := f.arrive(exclusive)
		end()
		require.Equal(t, "waiting", b.state())
		fb.place(0).granted <- fb.grant()
		synctest.Wait()
		require.Equal(t, "in", b.state())
		b.leave()
		require.Equal(t, 1, fb.count(), "it waited in the place of the first")
		require.Zero(t, fb.place(0).left())
	})
}

func TestPlaceIsLeft(t *testing.T) {
	t.Run("when nobody waits", func(t *testing.T) {
		stopWaiting(t, func(t *testing.T, f *fixture, fb *fakeBackend, end func()) {
			end()
			require.Equal(t, 1, fb.place(0).left())
			require.False(t, f.inUse())
		})
	})
	t.Run("when the next caller has the other mode", func(t *testing.T) {
		stopWaiting(t, func(t *testing.T, f *fixture, fb *fakeBackend, end func()) {
			b := f.arrive(shared)
			end()
			require.Equal(t, 1, fb.place(0).left())
			require.Equal(t, "in", b.state())
			require.Equal(t, 2, fb.count())
			require.Equal(t, shared, fb.last().Mode)
		})
	})
}

// slowToLeave has a caller wait in a place. Leave of it is not answered before answer is called.
func slowToLeave(f *fixture, fb *fakeBackend) (a *caller, answer func()) {
	fb.answerWith(queues)
	a = f.arrive(exclusive)
	answering, answer := gate()
	fb.place(len(fb.places) - 1).answering = answering
	return a, answer
}

// A place that is being left, or the grant that it gets meanwhile, would refuse its own instance.
func TestNoWaitIsNotRefusedByAPlaceThatIsBeingLeft(t *testing.T) {
	left := func(name string, test func(t *testing.T, fb *fakeBackend, b *caller, answer func())) {
		over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			a, answer := slowToLeave(f, fb)
			a.quit()
			b := f.arriveAs(noWait)
			require.Equal(t, "canceled waiting", states(a, b))
			test(t, fb, b, answer)
		})
	}
	left("it waits until it is left", func(t *testing.T, _ *fakeBackend, b *caller, answer func()) {
		answer()
		require.Equal(t, "in", b.state())
	})
	over(t, "and any other", func(t *testing.T, f *fixture, fb *fakeBackend) {
		first, answerFirst := slowToLeave(f, fb)
		first.quit()
		second, answerSecond := slowToLeave(f, fb)
		second.quit()
		b := f.arriveAs(noWait)
		answerSecond()
		require.Equal(t, "waiting", b.state())
		answerFirst()
		require.Equal(t, "in", b.state())
	})
	left("for a sixth of T", func(t *testing.T, fb *fakeBackend, b *caller, answer func()) {
		fb.answerWith(fails(distributed.ErrHeld))
		sleep(ttl / 6)
		require.Equal(t, "held", b.state())
		answer()
	})
	left("or until it gives up", func(t *testing.T, fb *fakeBackend, b *caller, answer func()) {
		fb.answerWith(hangs)
		b.quit()
		require.Equal(t, "canceled", b.state())
		answer()
	})
}

// The key is kept, and Close waits, until the backend has answered that a place was left.
func TestLeavingAPlaceIsAwaited(t *testing.T) {
	for name, behind := range map[string]bool{"when nobody waits": false, "when the next caller has the other mode": true} {
		over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			a, answer := slowToLeave(f, fb)
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
			answer()
			require.False(t, f.inUse())
			f.close()
			require.Empty(t, f.failures())
		})
	}
	over(t, "for at most the claim window", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, _ := slowToLeave(f, fb)
		a.quit()
		sleep(distributed.ClaimWindow(ttl) - 1)
		require.True(t, f.inUse())
		sleep(time.Nanosecond)
		require.False(t, f.inUse())
		require.Equal(t, []error{context.DeadlineExceeded}, f.failures())
	})
	for name, end := range map[string]func(*caller){
		"also with a lease that lingers":             func(c *caller) { c.leave(); c.use.Lease().(*fakeLease).lose() },
		"also with a lease whose release is awaited": func(c *caller) { _ = c.leaveAndWait(context.Background()) },
	} {
		with(lingering(time.Second)).over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			a, answer := slowToLeave(f, fb)
			b := f.arrive(shared)
			a.quit()
			end(b)
			f.shut()
			synctest.Wait()
			require.False(t, f.drained())
			answer()
		})
	}
}

// A grant that arrives as its receiver stops waiting lies in the place.
func TestGrantLyingInAPlace(t *testing.T) {
	over(t, "is inherited", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(queues)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		a.cancel()
		fb.place(0).granted <- fb.grant() // with a on its way out
		synctest.Wait()
		if a.state() == "in" { // the grant came first after all
			a.leave()
		}
		require.Equal(t, "in", b.state())
		b.leave()
		require.Equal(t, 1, fb.count())
		require.Equal(t, 1, fb.lease(0).releases())
	})
	pair(t, "is released with it", func(t *testing.T, _ *memlock.Backend, here, there *fixture) {
		a, b := there.arrive(exclusive), here.arrive(exclusive)
		require.Equal(t, "in waiting", states(a, b))
		b.cancel()
		a.leave() // to b, on its way out
		if b.state() == "in" {
			b.leave()
		}
		require.Equal(t, "in", there.arrive(exclusive).state(), "the lock is free")
	})
	over(t, "serves a NoWait caller, which gets ErrHeld without it", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(queues)
		at, ctx := f.group.New(key, 0, nil), t.Context()
		var use tenure.Use
		soon := tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Second)}
		require.Equal(t, tenure.ErrTimeout, at.Begin(ctx, &use, soon))
		require.Equal(t, distributed.ErrHeld, at.Begin(ctx, &use, noWait))
		fb.place(0).granted <- fb.grant()
		require.NoError(t, at.Begin(ctx, &use, noWait))
		require.Same(t, fb.lease(0), use.Lease())
	})
}

func TestLostPlaceEntersAgain(t *testing.T) {
	with(handoffs(0)).over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(grants, queues, queues, grants)
		first, a := f.arrive(exclusive), f.arrive(exclusive)
		first.leave()
		require.Same(t, fb.lease(0), fb.last().Prev)
		close(fb.place(0).granted)
		synctest.Wait()
		require.Equal(t, 3, fb.count())
		require.Nil(t, fb.last().Prev, "a released lease is not named again")
		require.Equal(t, "waiting", a.state())
		close(fb.place(1).granted)
		synctest.Wait()
		require.Equal(t, "in", a.state())
		a.leave()
		require.Zero(t, fb.place(0).left()+fb.place(1).left())
	})
}

func TestLostPlaceIsForgotten(t *testing.T) {
	over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(queues, fails(distributed.ErrUnavailable))
		a := f.arrive(exclusive)
		close(fb.place(0).granted)
		synctest.Wait()
		require.Equal(t, "unavailable", a.state())
		require.Zero(t, fb.place(0).left(), "there is no place to leave")
	})
}

func TestEnterEnds(t *testing.T) {
	over(t, "at the deadline", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(hangs)
		start := time.Now()
		c := f.newCaller(tenure.Ask{Mode: exclusive, Deadline: start.Add(time.Second)})
		err := c.enter()
		require.ErrorIs(t, err, tenure.ErrTimeout)
		require.ErrorIs(t, err, distributed.ErrUnavailable, "nothing was answered")
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, f.inUse())
	})
	over(t, "when the caller cancels", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(hangs)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		a.quit()
		require.Equal(t, "in", b.state())
	})
	over(t, "at once for a NoWait caller", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(fails(distributed.ErrHeld))
		a := f.arriveAs(noWait)
		require.True(t, fb.last().NoWait)
		require.Equal(t, "held", a.state())
		require.False(t, f.inUse())
	})
}
