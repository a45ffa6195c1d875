package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
)

func TestFences(t *testing.T) {
	over(t, "are fetched when none is left", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(brings(2, nil))
		a.leave()
		require.Equal(t, "in", b.state())
		require.Equal(t, a.use.Fence()+1, b.use.Fence())
	})
	over(t, "are 0 if the backend has none", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(brings(0, errors.ErrUnsupported))
		a.leave()
		require.Equal(t, "in", b.state())
		require.Zero(t, b.use.Fence())
	})
	over(t, "a caller without one is not let in; the lease stays for the next", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(brings(5, distributed.ErrUnavailable))
		a.leave()
		require.Equal(t, "unavailable in", states(b, c))
		require.Same(t, fb.lease(0), c.use.Lease())
	})
	over(t, "the lease is released if nobody is next", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(brings(0, distributed.ErrUnavailable))
		a.leave()
		require.Equal(t, "unavailable", b.state())
		require.Equal(t, 1, fb.lease(0).releases())
	})
	with(handoffs(0)).over(t, "the same for a fresh lease, and the next caller may enter", func(t *testing.T, f *fixture, fb *fakeBackend) {
		grant, granted := gate()
		fb.answerWith(after(grant, grantsEmpty(brings(0, distributed.ErrUnavailable))))
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		granted()
		require.Equal(t, "unavailable in", states(a, b))
		require.Same(t, fb.lease(1), b.use.Lease())
	})
	over(t, "a failed refill of a fresh lease does not mean that the backend has none", func(t *testing.T, f *fixture, fb *fakeBackend) {
		tries := 0
		grant, granted := gate()
		fb.answerWith(after(grant, grantsEmpty(func(ctx context.Context, l *fakeLease) error {
			if tries++; tries == 1 {
				return distributed.ErrUnavailable
			}
			return brings(10, nil)(ctx, l)
		})))
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		granted()
		require.Equal(t, "unavailable in", states(a, b))
		require.NotZero(t, b.use.Fence(), "the backend has fences")
	})
	over(t, "a lease that the backend disowns is replaced", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(brings(0, distributed.ErrLeaseLost))
		a.leave()
		f.requireUnder(fb.lease(1), b)
		require.Same(t, fb.lease(0), fb.last().Prev)
	})
	over(t, "the same for a fresh lease", func(t *testing.T, f *fixture, fb *fakeBackend) {
		asked := 0
		fb.answerWith(grantsEmpty(func(context.Context, *fakeLease) error { asked++; return distributed.ErrLeaseLost }))
		a := f.arrive(exclusive)
		f.requireUnder(fb.lease(1), a)
		require.Equal(t, 1, asked, "once is enough")
	})
}

func TestDeadlineCoversRefill(t *testing.T) {
	slow := func(ctx context.Context, _ *fakeLease) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
			return distributed.ErrUnavailable
		}
	}
	for _, fresh := range []bool{true, false} {
		over(t, fmt.Sprint("fresh ", fresh), func(t *testing.T, f *fixture, fb *fakeBackend) {
			var first *caller
			if fresh {
				fb.answerWith(grantsEmpty(slow))
			} else {
				first = f.arrive(exclusive)
			}
			begin := time.Now()
			c := f.newCaller(tenure.Ask{Mode: exclusive, Deadline: begin.Add(10 * time.Millisecond)})
			done := make(chan error, 1)
			go func() { done <- c.enter() }()
			synctest.Wait()
			if first != nil {
				fb.lease(0).empty(slow)
				first.leave()
			}
			require.ErrorIs(t, <-done, tenure.ErrTimeout)
			require.Equal(t, 10*time.Millisecond, time.Since(begin))
		})
	}
}
