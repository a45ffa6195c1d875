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

func TestRefusals(t *testing.T) {
	scene(t, "one budget covers both tiers", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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
	}, wllock.WithMaxHandoffs(0))

	scene(t, "an ended context does not get a free lock", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		require.ErrorIs(t, l.Do(ended(t), "n", "k", never(t)), context.Canceled)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "and leaves it free")
	})

	scene(t, "ErrInvalidKey comes before any queue", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		b.Partition(true) // an Enter would show as ErrUnavailable
		long := strings.Repeat("x", 513)
		for _, c := range []struct{ name, key string }{
			{"", "k"}, {"a:b", "k"}, {"a b", "k"}, {"ä", "k"}, {strings.Repeat("n", 65), "k"},
			{"n", ""}, {"n", long}, {"n", "a\nb"}, {"n", "a\x00b"}, {"n", "a\x7fb"}, {"n", "a\u0085b"}, {"n", "a\xffb"}, {"n", "\xc3"},
		} {
			err := l.Do(t.Context(), c.name, c.key, never(t))
			require.Zero(t, refusal(t, err, wllock.ErrInvalidKey, wllock.TierLocal).Waited)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 400)
		}
		_, err := wllock.New("a:b", b)
		require.ErrorIs(t, err, wllock.ErrInvalidKey)
	})

	// In which tier, whether its time or its context has ended, and which Locker has the lock: another one, or this one.
	scene(t, "who is refused learns why, and the holder", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		other := lockerOn(t, b, wllock.WithInstance("other"))
		defer hold(t, l, "n", "near")()
		defer hold(t, other, "n", "far")()
		why := errors.New("shop closes")
		canceled, stop := context.WithCancelCause(t.Context())
		stop(why)
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
			require.ErrorIs(t, late, context.DeadlineExceeded)
			require.Equal(t, ttl, late.Waited)
			require.Equal(t, ttl, map[wllock.Tier]time.Duration{wllock.TierLocal: late.LocalWait, wllock.TierDistributed: late.DistributedWait}[tier])
			own := refusal(t, l.Do(within(t, ttl), "n", key, never(t)), context.DeadlineExceeded, tier)
			require.Equal(t, context.DeadlineExceeded, own.Err)
			err := l.Do(canceled, "n", key, never(t))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, why)
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

	// Callers behind the head of the line learn what the head knows.
	pair(t, "who waits behind the head learns the holder", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
		far, head := comes(t, other), comes(t, l)
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(ttl)), wllock.ErrWaitTimeout, wllock.TierLocal)
		require.Equal(t, other.Instance(), e.Holder)
		require.Equal(t, other.Instance(), l.Locks(1)[0].Holder)
		require.Equal(t, other.Instance(), other.Locks(1)[0].Holder)
		leaves(far, head)
	})

	// With the backend's error beside it.
	bubble(t, "whatever error a backend returns is ErrUnavailable", func(t *testing.T) {
		odd := errors.New("odd")
		l := lockerOn(t, asking(nil, func(context.Context, *distributed.Request) error { return odd }))
		err := l.Do(t.Context(), "n", "k", never(t))
		refusal(t, err, wllock.ErrUnavailable, wllock.TierDistributed)
		require.ErrorIs(t, err, odd)
	})
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

func TestWhatALockerShows(t *testing.T) {
	scene(t, "instances of Lockers differ", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		other := lockerOn(t, b, wllock.WithInstance("web-1"))
		assert.True(t, strings.HasPrefix(l.Instance(), "web-1-"), l.Instance())
		assert.NotEqual(t, l.Instance(), other.Instance())
		_, err := wllock.New("test", b, wllock.WithInstance("web 1"))
		require.ErrorContains(t, err, `WithInstance("web 1"): want 1 to 63 letters`)
	}, wllock.WithInstance("web-1"))

	scene(t, "Inspect", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		defer hold(t, l, "n", "k")()
		found, err := lockerOn(t, b).Inspect(t.Context(), "n", "k")
		require.NoError(t, err)
		require.Equal(t, l.Instance(), found.Holder())
		_, err = l.Inspect(t.Context(), "n", "")
		require.ErrorIs(t, err, wllock.ErrInvalidKey)
		_, err = lockerOn(t, struct{ distributed.Backend }{b}).Inspect(t.Context(), "n", "k")
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})

	// Each line names the Locker, those of the outage policy, too.
	bubble(t, "log lines name the instance", func(t *testing.T) {
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

	scene(t, "Locks reports holders and waiters", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		near, far := hold(t, l, "n", "near"), hold(t, lockerOn(t, b), "n", "far")
		var waiting []<-chan error
		for _, key := range []string{"near", "near", "far"} {
			waiting = append(waiting, started(l, keys(key), nothing))
		}
		time.Sleep(ttl / 10)
		all := l.Locks(10)
		require.Len(t, all, 2)
		held, wanted := all[0], all[1]
		require.Equal(t, []any{"test:n:near", 2, 1, 1, ttl / 10}, []any{held.Key, held.Waiting, held.Holders, held.Turns, held.HeldFor})
		require.Positive(t, held.Fence)
		require.Equal(t, []any{"test:n:far", true, 0, time.Time{}}, []any{wanted.Key, wanted.AtBackend, wanted.Holders, wanted.Until})
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
		"exclusive": nil, "shared": {wllock.Shared()}, "permit": {two}, "permit alone": {two},
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
		bubble(t, fmt.Sprint("noticed: ", noticed), func(t *testing.T) {
			b := memlock.New()
			l := lockerOn(t, b)
			if !noticed {
				l = lockerOn(t, deaf(b))
			}
			k := acquire(t, l, "k")
			breaks(t, l, b, "k")
			synctest.Wait()
			require.Equal(t, noticed, k.Context().Err() != nil)
			err := k.Release(t.Context())
			require.ErrorIs(t, err, wllock.ErrLeaseLost)
			require.Equal(t, "ops", asError(t, err).Broken.By)
			require.Equal(t, "ops", asError(t, k.Release(t.Context())).Broken.By)
		})
	}
}

func TestInquiries(t *testing.T) {
	// A lock that is lost otherwise is not said to have been broken because it was once.
	scene(t, "an earlier Break is not blamed", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error { breaks(t, l, b, "k"); <-ctx.Done(); return nil })
		require.NotNil(t, asError(t, err).Broken)
		err = l.Do(t.Context(), "n", "k", losing(b, "k"))
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
		require.Nil(t, asError(t, err).Broken)
	})

	// When many locks are lost at once the backend is asked about one, and nobody waits long for the answer.
	bubble(t, "many losses are one inquiry", func(t *testing.T) {
		b := &counting{Backend: memlock.New()}
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
