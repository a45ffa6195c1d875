package wllock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func asError(t *testing.T, err error) *wllock.Error {
	t.Helper()
	e, ok := errors.AsType[*wllock.Error](err)
	require.True(t, ok, "%v", err)
	return e
}

func TestInstancesOfLockersDiffer(t *testing.T) {
	l, b := newLocker(t, wllock.WithInstance("web-1"))
	other := lockerOn(t, b, wllock.WithInstance("web-1"))
	assert.True(t, strings.HasPrefix(l.Instance(), "web-1-"), l.Instance())
	assert.NotEqual(t, l.Instance(), other.Instance())
	_, err := wllock.New("test", b, wllock.WithInstance("web 1"))
	require.ErrorContains(t, err, `WithInstance("web 1"): want 1 to 63 letters`)
}

// A refused caller learns which Locker has the lock: another one's, or this one's.
func TestRefusedLearnsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b, wllock.WithInstance("other"))
		near, far := hold(t, l, "n", "near"), hold(t, other, "n", "far")
		for key, holder := range map[string]string{"near": l.Instance(), "far": other.Instance()} {
			e := asError(t, l.Do(t.Context(), "n", key, never(t), wllock.NoWait()))
			require.ErrorIs(t, e, wllock.ErrHeld)
			require.Equal(t, wllock.ErrHeld, e.Err)
			require.Equal(t, holder, e.Holder)
			require.ErrorContains(t, e, fmt.Sprintf("held by %q", holder))
			e = asError(t, l.Do(t.Context(), "n", key, never(t), wllock.WithWait(ttl)))
			require.Equal(t, wllock.ErrWaitTimeout, e.Err)
			require.Equal(t, holder, e.Holder)
			require.Positive(t, e.RetryAfter)
			ctx, cancel := context.WithTimeout(t.Context(), ttl) // the caller's own deadline
			e = asError(t, l.Do(ctx, "n", key, never(t)))
			cancel()
			require.Equal(t, context.DeadlineExceeded, e.Err)
			require.Equal(t, holder, e.Holder)
			require.Positive(t, e.RetryAfter)
		}
		e := asError(t, l.Do(t.Context(), "n", "near", never(t), wllock.WithCallThreshold(0)))
		require.ErrorIs(t, e, wllock.ErrQueueFull)
		require.Equal(t, l.Instance(), e.Holder)
		near()
		far()
	})
}

// Callers behind the head of the line learn what the head knows.
func TestWaiterBehindTheHeadLearnsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		far := hold(t, other, "n", "k")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Do(ctx, "n", "k", never(t)) }() // the head
		synctest.Wait()
		e := asError(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(ttl)))
		require.Equal(t, wllock.TierLocal, e.Tier)
		require.Equal(t, other.Instance(), e.Holder)
		require.Equal(t, other.Instance(), l.Locks(1)[0].Holder)
		require.Equal(t, other.Instance(), other.Locks(1)[0].Holder)
		cancel()
		far()
	})
}

func TestReadersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		a, c := lockerOn(t, b), lockerOn(t, b)
		first, second := hold(t, a, "n", "k", wllock.Shared()), hold(t, c, "n", "k", wllock.Shared())
		e := asError(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()))
		require.Equal(t, a.Instance()+" and 1 more", e.Holder)
		first()
		second()
	})
}

func TestLockerInspects(t *testing.T) {
	l, b := newLocker(t)
	defer hold(t, l, "n", "k")()
	found, err := lockerOn(t, b).Inspect(t.Context(), "n", "k")
	require.NoError(t, err)
	require.Equal(t, l.Instance(), found.Holder())
	_, err = l.Inspect(t.Context(), "n", "")
	require.ErrorIs(t, err, wllock.ErrInvalidKey)
	_, err = lockerOn(t, struct{ distributed.Backend }{b}).Inspect(t.Context(), "n", "k")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// A lease that is ended by force ends the context of its function.
func TestBrokenLeaseEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			found, err := l.Inspect(ctx, "n", "k")
			require.NoError(t, err)
			_, err = b.Break(ctx, found, "operator", "stuck")
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, wllock.ErrLeaseLost, context.Cause(ctx))
			return nil
		})
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
	})
}

// Each line names the Locker, those of the outage policy, too.
func TestLogLinesNameTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := memlock.New()
		defer b.Close()
		l, err := wllock.New("test", b, wllock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		require.NoError(t, err)
		b.Partition(true)
		for range 5 {
			require.Error(t, l.Do(t.Context(), "n", "k", never(t)))
		}
		b.Partition(false)
		require.NoError(t, l.Close(t.Context()))
		require.NotEmpty(t, out.String())
		for line := range strings.Lines(out.String()) {
			require.Contains(t, line, "instance="+l.Instance())
		}
	})
}
