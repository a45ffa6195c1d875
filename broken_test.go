package wllock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// breaks ends the lease of a lock by force.
func breaks(t *testing.T, l *wllock.Locker, b *memlock.Backend, key string) {
	t.Helper()
	found, err := l.Inspect(t.Context(), "n", key)
	require.NoError(t, err)
	_, err = b.Break(t.Context(), found, "ops", "stuck since noon")
	require.NoError(t, err)
}

// A lease that is ended by force ends the context of its function, which is told by whom and why: in its error and in the log.
func TestTheHolderIsToldWhoBrokeItsLock(t *testing.T) {
	for name, opts := range map[string][]wllock.CallOption{"exclusive": nil, "shared": {wllock.Shared()}, "permit": {wllock.Permits(2)}, "permit alone": {wllock.Permits(2)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				l, b := newLocker(t, wllock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
				beside := lockerOn(t, b)
				err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
					if opts != nil && name != "permit alone" {
						k, err := beside.Acquire(ctx, "n", "k", opts...)
						require.NoError(t, err)
						defer func() { _ = k.Release(ctx) }()
					}
					breaks(t, l, b, "k")
					<-ctx.Done()
					require.Equal(t, wllock.ErrLeaseLost, context.Cause(ctx))
					return nil
				}, opts...)
				require.ErrorIs(t, err, wllock.ErrLeaseLost)
				e := asError(t, err)
				require.NotNil(t, e.Broken)
				require.Equal(t, "stuck since noon", e.Broken.Reason)
				require.ErrorContains(t, err, `: broken by "ops": "stuck since noon"`)
				synctest.Wait()
				require.Regexp(t, `msg="lock was broken" fence=\d+ by="\\"ops\\"" reason="\\"stuck since noon\\"" system=test name=n`, out.String())
				require.Contains(t, fmt.Sprint(e.LogValue()), "broken_by=")
			})
		})
	}
}

// deaf is a backend that does not tell a holder that its lease is lost, until that is released.
type deaf struct{ *memlock.Backend }

func (d deaf) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := d.Backend.Enter(ctx, r)
	if l != nil {
		l = deafLease{l}
	}
	return l, p, err
}

type deafLease struct{ distributed.Lease }

func (deafLease) Lost() <-chan struct{}       { return nil }
func (deafLease) Healthy() bool               { return true }
func (l deafLease) Unwrap() distributed.Lease { return l.Lease }

// Who releases is told as well: whether it has not looked at its context, or only the backend knew.
func TestAReleaseTellsWhoBrokeTheLock(t *testing.T) {
	for name, wrap := range map[string]func(*memlock.Backend) distributed.Backend{
		"noticed": func(b *memlock.Backend) distributed.Backend { return b }, "not noticed": func(b *memlock.Backend) distributed.Backend { return deaf{b} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memlock.New()
				l := lockerOn(t, wrap(b))
				k, err := l.Acquire(t.Context(), "n", "k")
				require.NoError(t, err)
				breaks(t, l, b, "k")
				synctest.Wait()
				require.Equal(t, name == "noticed", k.Context().Err() != nil)
				err = k.Release(t.Context())
				require.ErrorIs(t, err, wllock.ErrLeaseLost)
				require.Equal(t, "ops", asError(t, err).Broken.By)
				require.Equal(t, "ops", asError(t, k.Release(t.Context())).Broken.By)
			})
		})
	}
}

// A lock that is lost otherwise is not said to have been broken because it was once.
func TestAnEarlierBreakIsNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error { breaks(t, l, b, "k"); <-ctx.Done(); return nil })
		require.NotNil(t, asError(t, err).Broken)
		err = l.Do(t.Context(), "n", "k", func(ctx context.Context) error { b.Expire("test:n:k"); <-ctx.Done(); return nil })
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
		require.Nil(t, asError(t, err).Broken)
	})
}

// counting counts inspections, and lets them wait.
type counting struct {
	*memlock.Backend
	inspections atomic.Int64
	wait        chan struct{}
}

func (c *counting) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	c.inspections.Add(1)
	select {
	case <-c.wait:
		return c.Backend.Inspect(ctx, key)
	case <-ctx.Done():
		return distributed.Inspection{}, ctx.Err()
	}
}

// When many locks are lost at once the backend is asked about one, and nobody waits long for the answer.
func TestManyLossesAreOneInquiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New(), wait: make(chan struct{})}
		l := lockerOn(t, b)
		var callers sync.WaitGroup
		var inside atomic.Int64
		const most = 100
		for i := range most {
			callers.Go(func() {
				err := l.Do(t.Context(), "n", fmt.Sprint(i), func(ctx context.Context) error { inside.Add(1); <-ctx.Done(); return nil })
				require.ErrorIs(t, err, wllock.ErrLeaseLost)
			})
		}
		synctest.Wait()
		require.EqualValues(t, most, inside.Load())
		for i := range most {
			b.Expire("test:n:" + fmt.Sprint(i))
		}
		callers.Wait()
		require.EqualValues(t, 1, b.inspections.Load())
		require.NoError(t, errors.Join(l.Close(t.Context()), b.Close()))
	})
}
