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
	"github.com/wllock/wllock/distributed"
)

// A caller that waited in vain is told in which tier, and whether its time or its context has ended.
func TestWaitInVain(t *testing.T) {
	const wait = 300 * time.Millisecond
	for _, tier := range []wllock.Tier{wllock.TierLocal, wllock.TierDistributed} {
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t)
			holder := l
			if tier == wllock.TierDistributed {
				holder = lockerOn(t, b)
			}
			defer hold(t, holder, "n", "k")()
			err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(wait))
			e := refusal(t, err, wllock.ErrWaitTimeout, tier)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, wait, map[wllock.Tier]time.Duration{wllock.TierLocal: e.LocalWait, wllock.TierDistributed: e.DistributedWait}[tier])
			require.Equal(t, wait, e.Waited)

			ctx := within(t, wait)
			err = l.Do(ctx, "n", "k", never(t))
			refusal(t, err, context.DeadlineExceeded, tier)
			require.NotErrorIs(t, err, wllock.ErrWaitTimeout)

			why := errors.New("shop closes")
			canceled, stop := context.WithCancelCause(t.Context())
			stop(why)
			err = l.Do(canceled, "n", "k", never(t))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, why)
		})
	}
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

func TestEndedContextDoesNotGetAFreeLock(t *testing.T) {
	l, _ := newLocker(t)
	ctx := ended(t)
	require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), context.Canceled)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "and leaves it free")
}

// Whatever error a backend returns is ErrUnavailable to the caller, with the backend's error beside it.
func TestForeignBackendErrorIsErrUnavailable(t *testing.T) {
	odd := errors.New("odd")
	l := lockerOn(t, entering{nil, func(context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
		return nil, nil, odd
	}})
	err := l.Do(t.Context(), "n", "k", never(t))
	refusal(t, err, wllock.ErrUnavailable, wllock.TierDistributed)
	require.ErrorIs(t, err, odd)
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
