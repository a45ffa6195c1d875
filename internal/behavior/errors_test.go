package behavior

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestErrQueueFullAtOnceWithRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(0))
		defer hold(t, l, "n", "k")()
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrQueueFull, wllock.TierLocal)
		require.Zero(t, e.Waited)
		require.Positive(t, e.RetryAfter)
		require.Equal(t, "test:n:k", e.Key)
		require.EqualValues(t, 1, l.Stats().Names["n"].Shed)
	})
}

func TestErrWaitTimeoutInTheLocalQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		defer hold(t, l, "n", "k")()
		err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(300*time.Millisecond))
		e := refusal(t, err, wllock.ErrWaitTimeout, wllock.TierLocal)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 300*time.Millisecond, e.LocalWait)
		require.Zero(t, e.DistributedWait)
	})
}

func TestErrWaitTimeoutAtTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		defer hold(t, other, "n", "k")()
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(300*time.Millisecond)),
			wllock.ErrWaitTimeout, wllock.TierDistributed)
		require.Equal(t, 300*time.Millisecond, e.DistributedWait)
		require.Zero(t, e.LocalWait)
	})
}

func TestOneBudgetCoversBothTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		releaseLocal := hold(t, l, "n", "k")
		theirs := make(chan func())
		go func() { theirs <- hold(t, other, "n", "k") }()
		synctest.Wait()
		failed := make(chan error)
		go func() { failed <- l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(300*time.Millisecond)) }()
		time.Sleep(100 * time.Millisecond)
		releaseLocal() // our caller now has the turn and waits behind the other instance
		release := <-theirs
		e := refusal(t, <-failed, wllock.ErrWaitTimeout, wllock.TierDistributed)
		require.Equal(t, 100*time.Millisecond, e.LocalWait)
		require.Equal(t, 200*time.Millisecond, e.DistributedWait)
		release()
	})
}

func TestCallersOwnContextReturnsItsOwnError(t *testing.T) {
	for _, where := range []string{"local", "distributed"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, b := newLocker(t)
				holder := l
				if where == "distributed" {
					holder = lockerOn(t, b)
				}
				defer hold(t, holder, "n", "k")()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				err := l.Do(ctx, "n", "k", never(t))
				refusal(t, err, context.DeadlineExceeded, wllock.Tier(where))
				require.NotErrorIs(t, err, wllock.ErrWaitTimeout)

				why := errors.New("shop closes")
				canceled, stop := context.WithCancelCause(t.Context())
				stop(why)
				err = l.Do(canceled, "n", "k", never(t))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, why)
			})
		})
	}
}

func TestEndedContextDoesNotGetAFreeLock(t *testing.T) {
	l, _ := newLocker(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), context.Canceled)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "and leaves it free")
}

func TestErrHeldNamesTheTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		defer hold(t, l, "n", "k")()
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld, wllock.TierLocal)
		require.Positive(t, e.RetryAfter)
		e = refusal(t, other.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld, wllock.TierDistributed)
		require.Zero(t, e.Waited)
	})
}

func TestErrUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		b.Partition(true)
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable, wllock.TierDistributed)
		require.Positive(t, e.RetryAfter)
		require.ErrorIs(t, l.Ping(t.Context()), wllock.ErrUnavailable)
		b.Partition(false)
		require.NoError(t, l.Ping(t.Context()))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.EqualValues(t, 1, l.Stats().Total.Unavailable)
	})
}

// Whatever error a backend returns is ErrUnavailable to the caller, with the backend's error beside it.
func TestForeignBackendErrorIsErrUnavailable(t *testing.T) {
	odd := errors.New("odd")
	l := lockerOn(t, failing{err: odd})
	err := l.Do(t.Context(), "n", "k", never(t))
	refusal(t, err, wllock.ErrUnavailable, wllock.TierDistributed)
	require.ErrorIs(t, err, odd)
}

func TestErrClosed(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.Close(t.Context()))
	refusal(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrClosed, wllock.TierLocal)
}

func TestErrInvalidKeyBeforeAnyQueue(t *testing.T) {
	l, b := newLocker(t)
	b.Partition(true) // an Enter would show as ErrUnavailable
	long := strings.Repeat("x", 513)
	for _, c := range []struct{ name, key string }{
		{"", "k"}, {"a:b", "k"}, {"a b", "k"}, {"ä", "k"}, {strings.Repeat("n", 65), "k"},
		{"n", ""}, {"n", long}, {"n", "a\nb"}, {"n", "a\x00b"}, {"n", "a\x7fb"}, {"n", "a\u0085b"}, {"n", "a\xffb"}, {"n", "\xc3"},
	} {
		err := l.Do(t.Context(), c.name, c.key, never(t))
		e := refusal(t, err, wllock.ErrInvalidKey, wllock.TierLocal)
		require.Zero(t, e.Waited)
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 400)
	}
	_, err := wllock.New("a:b", b)
	require.ErrorIs(t, err, wllock.ErrInvalidKey)
}

func TestAwkwardKeysAreFine(t *testing.T) {
	l, _ := newLocker(t)
	for _, key := range []string{"a:b", "{a}", "}{", "{}", "käse", "鍵", " ", strings.Repeat("k", 512)} {
		require.NoError(t, l.Do(t.Context(), "n", key, func(ctx context.Context) error {
			h, ok := wllock.HeldKey(ctx, "n", key)
			require.True(t, ok)
			require.Equal(t, "test:n:"+key, h.Key())
			return nil
		}))
	}
}

func TestErrorPrintsKeysQuotedAndCut(t *testing.T) {
	e := &wllock.Error{Op: "acquire", Key: "a\n\"" + strings.Repeat("ü", 100), Tier: wllock.TierLocal, Err: wllock.ErrHeld}
	for _, s := range []string{e.Error(), fmt.Sprintf("%v", e), e.LogValue().String()} {
		require.NotContains(t, s, "\n")
		require.Contains(t, s, `a\n\"`)
		require.NotContains(t, s, strings.Repeat("ü", 32))
		require.NotContains(t, s, "\ufffd")
	}
}

// Errors of several causes are compared as others are: one that was a slice panicked.
func TestErrorsOfSeveralCanBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, wllock.WithLockTimeMax(time.Second))
		require.ErrorIs(t, err, wllock.ErrLockTimeMax)
		require.ErrorIs(t, err, context.Canceled)
		same := err
		require.True(t, err == same)
		require.Len(t, map[error]bool{err: true, same: true}, 1)
	})
}
