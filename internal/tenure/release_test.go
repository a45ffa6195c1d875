package tenure_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// delayRelease makes the answer to the release of l wait until the function that it returns is called.
func delayRelease(l *fakeLease, err error) (answer func()) {
	answering, answer := gate()
	l.set(func(l *fakeLease) { l.answering, l.answer = answering, err })
	return answer
}

// awaits is leaveAndWait in the background.
func (c *caller) awaits() <-chan error {
	result := make(chan error, 1)
	go func() { result <- c.leaveAndWait(context.Background()) }()
	synctest.Wait()
	return result
}

func TestReleaseGoesOnInTheBackground(t *testing.T) {
	over(t, "the key is kept until it is answered, and Close waits", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), nil)
		require.True(t, a.leave())
		require.Equal(t, 1, fb.lease(0).releases())
		f.shut()
		require.True(t, f.inUse())
		require.False(t, f.drained())
		answer()
		f.close()
		require.Empty(t, f.failures())
	})
	over(t, "the next Enter names it, and its answer counts", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), distributed.ErrUnavailable)
		a.leave()
		b := f.arrive(exclusive)
		require.Same(t, fb.lease(0), fb.last().Prev)
		b.leave()
		require.False(t, f.inUse(), "the answer of the Enter counts")
		c := f.arrive(exclusive)
		require.Nil(t, fb.last().Prev)
		answer() // late
		require.Equal(t, "in", c.state())
		require.Empty(t, f.failures(), "it has been released, whatever a late answer says")
	})
	with(handoffs(0)).over(t, "after an Enter of unknown outcome it is released once", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), nil)
		fb.answerWith(fails(distributed.ErrUnavailable), hangs)
		a.leave()
		require.Equal(t, "unavailable waiting", states(b, c))
		require.Equal(t, 1, fb.lease(0).releases(), "at once")
		c.quit()
		require.Equal(t, 3, fb.count())
		require.Same(t, fb.lease(0), fb.last().Prev, "named until it is answered")
		require.Equal(t, 1, fb.lease(0).releases())
		require.True(t, f.inUse())
		answer()
		require.False(t, f.inUse())
	})
	with(handoffs(0)).over(t, "after an Enter of unknown outcome a late release is no loss", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), distributed.ErrLeaseLost)
		fb.answerWith(fails(distributed.ErrUnavailable))
		a.leave()
		require.Equal(t, "unavailable", b.state())
		answer()
		f.close()
		require.Empty(t, f.failures())
	})
	with(handoffs(0)).over(t, "after ErrHeld it has been released", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		fb.answerWith(fails(distributed.ErrHeld), grants)
		a.leave()
		require.Equal(t, "held in", states(b, c))
		require.Nil(t, fb.last().Prev)
		require.Zero(t, fb.lease(0).releases())
	})
	over(t, "a failure is reported, and the key is not kept", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		fb.lease(0).set(func(l *fakeLease) { l.answer = distributed.ErrUnavailable })
		a.leave()
		require.Equal(t, []error{distributed.ErrUnavailable}, f.failures())
		require.False(t, f.inUse())
	})
	over(t, "a lease that is lost meanwhile is not awaited", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), distributed.ErrLeaseLost)
		a.leave()
		fb.lease(0).lose()
		require.False(t, f.inUse())
		f.close()
		answer()
	})
}

func TestReleaseAndWait(t *testing.T) {
	for _, answer := range []error{nil, distributed.ErrLeaseLost} {
		over(t, fmt.Sprint("returns the backend's answer: ", answer), func(t *testing.T, f *fixture, fb *fakeBackend) {
			a := f.arrive(exclusive)
			answering, start := make(chan struct{}), time.Now()
			fb.lease(0).set(func(l *fakeLease) { l.answering, l.answer = answering, answer })
			time.AfterFunc(time.Second, func() { close(answering) })
			require.Equal(t, answer, a.leaveAndWait(context.Background()))
			require.Equal(t, time.Second, time.Since(start))
			f.requireReleased(fb.lease(0))
		})
	}
	over(t, "returns when ctx ends, and goes on in the background", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, a.leaveAndWait(ctx))
		require.True(t, f.inUse(), "Close waits for the answer")
		answer()
		require.False(t, f.inUse())
		require.Empty(t, f.failures())
	})
	over(t, "goes on in the background after ErrUnavailable", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		fb.lease(0).set(func(l *fakeLease) { l.answer = distributed.ErrUnavailable })
		require.Equal(t, distributed.ErrUnavailable, a.leaveAndWait(t.Context()))
		require.Equal(t, 2, fb.lease(0).releases())
		require.Equal(t, []error{distributed.ErrUnavailable}, f.failures())
		require.False(t, f.inUse())
	})
	over(t, "the next caller names a lease whose release is still under way", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, context.Canceled, a.leaveAndWait(ctx))
		f.arrive(exclusive)
		require.Same(t, fb.lease(0), fb.last().Prev)
		answer()
	})
	over(t, "the next caller does not wait for the answer", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), nil)
		a.awaits()
		b := f.arrive(exclusive)
		require.Equal(t, "in", b.state())
		require.Same(t, fb.lease(0), fb.last().Prev)
		answer()
		require.Equal(t, "in", b.state())
	})
	for name, enter := range map[string]answer{"has": grants, "may have": fails(distributed.ErrUnavailable)} {
		over(t, "an Enter that "+name+" released the lease first makes no loss", func(t *testing.T, f *fixture, fb *fakeBackend) {
			a := f.arrive(exclusive)
			answer := delayRelease(fb.lease(0), distributed.ErrLeaseLost)
			result := a.awaits()
			fb.answerWith(enter)
			f.arrive(exclusive)
			answer()
			require.NoError(t, <-result)
			require.Empty(t, f.failures())
		})
	}
	over(t, "a lease that is lost before is lost", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), distributed.ErrLeaseLost)
		result := a.awaits()
		close(fb.lease(0).lost)
		answer()
		require.Equal(t, distributed.ErrLeaseLost, <-result)
	})
	over(t, "nobody else releases the lease meanwhile", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		answer := delayRelease(fb.lease(0), nil)
		a.awaits()
		fb.answerWith(fails(distributed.ErrUnavailable), fails(distributed.ErrUnavailable))
		require.Equal(t, "unavailable", f.arrive(exclusive).state())
		require.Equal(t, "unavailable", f.arrive(exclusive).state())
		require.Equal(t, 1, fb.lease(0).releases())
		answer()
		require.False(t, f.inUse(), "it was pinned once")
	})
	over(t, "does nothing when the lease was handed on or lost", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		require.NoError(t, a.leaveAndWait(t.Context()))
		synctest.Wait()
		require.Equal(t, "in", b.state())
		b.tenure.End(&b.use, time.Now())
		fb.lease(0).lose()
		b.turn.Pass()
		require.NoError(t, b.tenure.ReleaseAndWait(t.Context(), &b.turn))
		require.Zero(t, fb.lease(0).releases())
	})
}

func TestClose(t *testing.T) {
	over(t, "ends a wait at the backend, and leaves the place", func(t *testing.T, f *fixture, fb *fakeBackend) {
		fb.answerWith(queues)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		f.shut()
		synctest.Wait()
		require.Equal(t, "closed local closed", states(a, b))
		require.Equal(t, 1, fb.place(0).left())
	})
	with(lingering(time.Second)).over(t, "lets users of the lease finish", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		f.shut()
		require.False(t, f.drained())
		require.True(t, a.leave())
		require.Equal(t, 1, fb.lease(0).releases())
	})
	over(t, "may be repeated", func(_ *testing.T, f *fixture, _ *fakeBackend) { f.close() })
}
