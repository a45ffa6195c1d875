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
	empty := func(l *fakeLease, refill func(context.Context) error) {
		l.set(func(l *fakeLease) { l.fences, l.refill = 0, refill })
	}
	bubble(t, "are fetched when none is left", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		l := fb.lease(0)
		empty(l, func(context.Context) error { l.set(func(l *fakeLease) { l.fences = 2 }); return nil })
		a.leave()
		require.Equal(t, "in", b.state())
		require.Equal(t, a.use.Fence()+1, b.use.Fence())
		b.leave()
		f.close()
	})
	bubble(t, "are 0 if the backend has none", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		empty(fb.lease(0), func(context.Context) error { return errors.ErrUnsupported })
		a.leave()
		require.Equal(t, "in", b.state())
		require.Zero(t, b.use.Fence())
		b.leave()
		f.close()
	})
	bubble(t, "a caller without one is not let in; the lease stays for the next", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		l := fb.lease(0)
		empty(l, func(context.Context) error {
			refilled(l, 5)
			return distributed.ErrUnavailable
		})
		a.leave()
		require.Equal(t, "unavailable in", states(b, c))
		require.Same(t, l, c.use.Lease())
		c.leave()
		f.close()
	})
	bubble(t, "the lease is released if nobody is next", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		empty(fb.lease(0), func(context.Context) error { return distributed.ErrUnavailable })
		a.leave()
		require.Equal(t, "unavailable", b.state())
		require.Equal(t, 1, fb.lease(0).releases())
		f.close()
	})
	bubble(t, "the same for a fresh lease, and the next caller may enter", func(t *testing.T) {
		fb, grant := new(fakeBackend), make(chan struct{})
		f := newFixture(t, fb, handoffs(0))
		fb.answerWith(func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			<-grant
			l := fb.grant()
			empty(l, func(context.Context) error { return distributed.ErrUnavailable })
			return l, nil, nil
		})
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		close(grant)
		synctest.Wait()
		require.Equal(t, "unavailable in", states(a, b))
		require.Same(t, fb.lease(1), b.use.Lease())
		b.leave()
		f.close()
	})
	bubble(t, "a lease that the backend disowns is replaced", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		empty(fb.lease(0), func(context.Context) error { return distributed.ErrLeaseLost })
		a.leave()
		_, req := fb.enters()
		require.Equal(t, "in", b.state())
		require.Same(t, fb.lease(1), b.use.Lease())
		require.Same(t, fb.lease(0), req.Prev)
		b.leave()
		f.close()
	})
	bubble(t, "the same for a fresh lease", func(t *testing.T) {
		fb, asked := new(fakeBackend), 0
		f := newFixture(t, fb)
		fb.answerWith(func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			l := fb.grant()
			empty(l, func(context.Context) error { asked++; return distributed.ErrLeaseLost })
			return l, nil, nil
		})
		a := f.arrive(exclusive)
		require.Equal(t, "in", a.state())
		require.Same(t, fb.lease(1), a.use.Lease())
		require.Equal(t, 1, asked, "once is enough")
		a.leave()
		f.close()
	})
}

func refilled(l *fakeLease, n int) { l.set(func(l *fakeLease) { l.fences = n }) }

// grantsBare grants a lease without fences; the first refill fails, later ones bring fences.
func grantsBare(first error) answer {
	return func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
		l := fb.grant()
		tries := 0
		l.set(func(l *fakeLease) {
			l.fences = 0
			l.refill = func(context.Context) error {
				if tries++; tries == 1 {
					return first
				}
				l.set(func(l *fakeLease) { l.fences = 10 })
				return nil
			}
		})
		return l, nil, nil
	}
}

func TestFailedRefillOfAFreshLeaseIsNotNoFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb := new(fakeBackend)
		gate := make(chan struct{})
		fb.answerWith(after(gate, grantsBare(distributed.ErrUnavailable)))
		f := newFixture(t, fb)
		a := f.arrive(exclusive)
		b := f.arrive(exclusive)
		close(gate)
		synctest.Wait()
		require.Equal(t, "unavailable in", states(a, b))
		require.NotZero(t, b.use.Fence(), "the backend has fences")
		b.leave()
		f.close()
	})
}

func TestDeadlineCoversRefill(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		t.Run(fmt.Sprint("fresh ", fresh), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fb := new(fakeBackend)
				f := newFixture(t, fb)
				slow := func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(2 * time.Second):
						return distributed.ErrUnavailable
					}
				}
				var first *caller
				if fresh {
					fb.answerWith(func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
						l := fb.grant()
						l.set(func(l *fakeLease) { l.fences, l.refill = 0, slow })
						return l, nil, nil
					})
				} else {
					first = f.arrive(exclusive)
				}
				begin := time.Now()
				c := f.newCaller(tenure.Ask{Mode: exclusive, Deadline: begin.Add(10 * time.Millisecond)})
				done := make(chan error, 1)
				go func() { done <- c.enter() }()
				synctest.Wait()
				if first != nil {
					fb.lease(0).set(func(l *fakeLease) { l.fences, l.refill = 0, slow })
					first.leave()
				}
				require.ErrorIs(t, <-done, tenure.ErrTimeout)
				require.Equal(t, 10*time.Millisecond, time.Since(begin))
				f.close()
			})
		})
	}
}
