package behavior

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
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

func TestInstancesOfLockersDiffer(t *testing.T) {
	l, b := newLocker(t, wllock.WithInstance("web-1"))
	other := lockerOn(t, b, wllock.WithInstance("web-1"))
	assert.True(t, strings.HasPrefix(l.Instance(), "web-1-"), l.Instance())
	assert.NotEqual(t, l.Instance(), other.Instance())
	_, err := wllock.New("test", b, wllock.WithInstance("web 1"))
	require.ErrorContains(t, err, `WithInstance("web 1"): want 1 to 63 letters`)
}

// A refused caller learns in which tier, and which Locker has the lock: another one's, or this one's.
func TestRefusedLearnsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b, wllock.WithInstance("other"))
		defer hold(t, l, "n", "near")()
		defer hold(t, other, "n", "far")()
		for key, holder := range map[string]*wllock.Locker{"near": l, "far": other} {
			tier := wllock.TierDistributed
			if holder == l {
				tier = wllock.TierLocal
			}
			e := refusal(t, l.Do(t.Context(), "n", key, never(t), wllock.NoWait()), wllock.ErrHeld, tier)
			require.Equal(t, wllock.ErrHeld, e.Err)
			require.ErrorContains(t, e, fmt.Sprintf("held by %q", holder.Instance()))
			require.Zero(t, e.Waited)
			late := refusal(t, l.Do(t.Context(), "n", key, never(t), wllock.WithWait(ttl)), wllock.ErrWaitTimeout, tier)
			require.Equal(t, wllock.ErrWaitTimeout, late.Err)
			own := refusal(t, l.Do(within(t, ttl), "n", key, never(t)), context.DeadlineExceeded, tier)
			require.Equal(t, context.DeadlineExceeded, own.Err)
			for _, e := range []*wllock.Error{e, late, own} {
				require.Equal(t, holder.Instance(), e.Holder)
				require.Equal(t, "test:n:"+key, e.Key)
				require.Positive(t, e.RetryAfter)
			}
		}
		e := refusal(t, l.Do(t.Context(), "n", "near", never(t), wllock.WithCallThreshold(0)), wllock.ErrQueueFull, wllock.TierLocal)
		require.Equal(t, l.Instance(), e.Holder)
		require.Zero(t, e.Waited)
		require.Positive(t, e.RetryAfter)
		require.EqualValues(t, 1, l.Stats().Names["n"].Shed)
	})
}

// Callers behind the head of the line learn what the head knows.
func TestWaiterBehindTheHeadLearnsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		far, head := comes(t, other), comes(t, l)
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(ttl)), wllock.ErrWaitTimeout, wllock.TierLocal)
		require.Equal(t, other.Instance(), e.Holder)
		require.Equal(t, other.Instance(), l.Locks(1)[0].Holder)
		require.Equal(t, other.Instance(), other.Locks(1)[0].Holder)
		leaves(far, head)
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

// Each line names the Locker, those of the outage policy, too.
func TestLogLinesNameTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := memlock.New()
		defer b.Close()
		l, err := wllock.New("test", b, logTo(&out))
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
	for name, opts := range map[string][]wllock.CallOption{
		"exclusive": nil, "shared": {wllock.Shared()}, "permit": {wllock.Permits(2)}, "permit alone": {wllock.Permits(2)},
	} {
		bubble(t, name, func(t *testing.T) {
			var out bytes.Buffer
			l, b := newLocker(t, logTo(&out))
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
	}
}

// Who releases is told as well: whether it has not looked at its context, or only the backend knew.
func TestAReleaseTellsWhoBrokeTheLock(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := memlock.New()
			l := lockerOn(t, b)
			if !noticed {
				l = lockerOn(t, deaf(b))
			}
			k, err := l.Acquire(t.Context(), "n", "k")
			require.NoError(t, err)
			breaks(t, l, b, "k")
			synctest.Wait()
			require.Equal(t, noticed, k.Context().Err() != nil)
			err = k.Release(t.Context())
			require.ErrorIs(t, err, wllock.ErrLeaseLost)
			require.Equal(t, "ops", asError(t, err).Broken.By)
			require.Equal(t, "ops", asError(t, k.Release(t.Context())).Broken.By)
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

// When many locks are lost at once the backend is asked about one, and nobody waits long for the answer.
func TestManyLossesAreOneInquiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New(), wait: make(chan struct{})}
		l := lockerOn(t, b)
		var callers sync.WaitGroup
		const most = 100
		for i := range most {
			callers.Go(func() {
				err := l.Do(t.Context(), "n", fmt.Sprint(i), func(ctx context.Context) error { <-ctx.Done(); return nil })
				lostAfter(t, err)
			})
		}
		synctest.Wait()
		for i := range most {
			b.Expire("test:n:" + fmt.Sprint(i))
		}
		callers.Wait()
		require.EqualValues(t, 1, b.inspections.Load())
		require.NoError(t, errors.Join(l.Close(t.Context()), b.Close()))
	})
}

func TestLocksReportsHoldersAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		near, far := hold(t, l, "n", "near"), hold(t, lockerOn(t, b), "n", "far")
		var waiting []<-chan error
		for _, key := range []string{"near", "near", "far"} {
			waiting = append(waiting, started(l, keys(key), nothing))
		}
		time.Sleep(ttl / 10)
		all := l.Locks(10)
		require.Len(t, all, 2)
		held, wanted := all[0], all[1]
		require.Equal(t, "test:n:near", held.Key)
		require.Equal(t, []int{2, 1, 1}, []int{held.Waiting, held.Holders, held.Turns})
		require.Equal(t, ttl/10, held.HeldFor)
		require.Positive(t, held.Fence)
		require.Equal(t, "test:n:far", wanted.Key)
		require.True(t, wanted.AtBackend)
		require.Zero(t, wanted.Holders)
		require.Zero(t, wanted.Until)
		require.Len(t, l.Locks(1), 1)
		near()
		far()
		for _, served := range waiting {
			require.NoError(t, <-served)
		}
		synctest.Wait()
		require.Empty(t, l.Locks(10))
	})
}
