package behavior

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// A request takes the lock, and another process goes on with it. Who waits goes on waiting.
func TestDetachedLockGoesOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, b := newLocker(t)
		job, third := lockerOn(t, b), lockerOn(t, b)
		lock := acquire(t, web, "k")
		order := make(chan string, 2)
		wait := func(l *wllock.Locker, who string) {
			go func() {
				_ = l.Do(t.Context(), "n", "k", func(context.Context) error { order <- who; return nil })
			}()
			synctest.Wait()
		}
		wait(web, "the local waiter")
		wait(third, "the other instance")

		token, err := lock.Detach(t.Context(), time.Minute)
		require.NoError(t, err)
		require.ErrorIs(t, lock.Context().Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(lock.Context()), wllock.ErrDetached)
		require.ErrorIs(t, lock.Err(), wllock.ErrDetached)
		require.NoError(t, lock.Release(t.Context()), "it does nothing")
		_, err = web.Acquire(lock.Context(), "n", "k")
		require.ErrorIs(t, err, wllock.ErrDetached, "no nested guard enters")
		time.Sleep(30 * time.Second)
		require.Empty(t, order)
		found, err := third.Inspect(t.Context(), "n", "k")
		require.NoError(t, err)
		require.True(t, found.Holders[0].Detached())
		require.InDelta(t, 30, found.Holders[0].Left.Seconds(), 1)

		adopted, err := job.Adopt(t.Context(), token, forever)
		require.NoError(t, err)
		require.Greater(t, adopted.Fence(), lock.Fence())
		require.Equal(t, "test:n:k", adopted.Key())
		require.NoError(t, job.Do(adopted.Context(), "n", "k", nothing), "a nested guard")
		time.Sleep(10 * ttl)
		require.NoError(t, adopted.Err(), "it is renewed")
		require.Empty(t, order)
		_, err = third.Adopt(t.Context(), token)
		require.ErrorIs(t, err, wllock.ErrLeaseLost, "a token works once")
		require.ErrorIs(t, third.ReleaseToken(t.Context(), token), wllock.ErrLeaseLost)

		require.NoError(t, adopted.Release(t.Context()))
		require.ElementsMatch(t, []string{"the local waiter", "the other instance"}, []string{<-order, <-order})
		require.Zero(t, web.Stats().Total.Lost+job.Stats().Total.Lost)
	})
}

func TestDetachedLockIsReleasedByItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Hour)
		require.NoError(t, err)
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		require.NoError(t, lockerOn(t, b).ReleaseToken(t.Context(), token))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
		require.ErrorIs(t, l.ReleaseToken(t.Context(), token), wllock.ErrLeaseLost)
	})
}

func TestDetachedLockIsFreeWhenItsTimeHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Minute)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.GreaterOrEqual(t, time.Since(start), time.Minute)
		_, err = l.Adopt(t.Context(), token)
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
		var e *wllock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "adopt", e.Op)
	})
}

// The process that adopts the lock has callers of its own that wait for it: the token's owner does not stand in their line.
func TestAdoptingLockerHasWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(1))
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Hour)
		require.NoError(t, err)
		ran := make(chan struct{}, 2)
		for range 2 { // one waits at the backend, and one behind it
			go func() {
				_ = l.Do(t.Context(), "n", "k", func(context.Context) error { ran <- struct{}{}; return nil })
			}()
		}
		synctest.Wait()
		adopted, err := l.Adopt(t.Context(), token)
		require.NoError(t, err)
		locks := l.Locks(9)
		require.Len(t, locks, 1)
		require.Equal(t, "test:n:k", locks[0].Key)
		require.Equal(t, 1, locks[0].Holders)
		require.Equal(t, 1, locks[0].Waiting)
		require.True(t, locks[0].AtBackend)
		require.Equal(t, l.Instance(), locks[0].Holder)
		err = l.Do(t.Context(), "n", "k", never(t))
		require.ErrorIs(t, err, wllock.ErrQueueFull)
		require.NoError(t, adopted.Release(t.Context()))
		<-ran
		<-ran
	})
}

func TestAdoptedLockIsDetachedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		lock := acquire(t, l, "k")
		for range 3 {
			token, err := lock.Detach(t.Context(), time.Minute)
			require.NoError(t, err)
			next, err := l.Adopt(t.Context(), token)
			require.NoError(t, err)
			require.Greater(t, next.Fence(), lock.Fence())
			lock = next
		}
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

func TestAdoptedLockHasALockTimeMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Hour)
		require.NoError(t, err)
		start := time.Now()
		lock, err := l.Adopt(t.Context(), token, wllock.WithLockTimeMax(5*time.Second))
		require.NoError(t, err)
		<-lock.Context().Done()
		require.Equal(t, 5*time.Second, time.Since(start))
		_, err = lock.Detach(t.Context(), time.Minute)
		require.NoError(t, err, "what it was taken for goes on elsewhere")
	})
}

// A lock that cannot be detached stays held.
func TestWhatCannotBeDetachedStaysHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		ctx := t.Context()
		for _, d := range []time.Duration{-1, 0, time.Millisecond, 400 * 24 * time.Hour} {
			lock := acquire(t, l, "k")
			_, err := lock.Detach(ctx, d)
			require.ErrorContains(t, err, "want 50ms to 8784h0m0s")
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Release(ctx))
		}
		for want, opts := range map[string]wllock.CallOption{
			"want an exclusive lock": wllock.Shared(), "of a shared lock or a permit": two,
			"with WithHoldAtLeast: want one or the other": wllock.WithHoldAtLeast(time.Second),
		} {
			lock := acquire(t, l, "k", opts)
			_, err := lock.Detach(ctx, time.Minute)
			require.ErrorContains(t, err, want)
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Release(ctx))
			time.Sleep(2 * time.Second)
		}

		outer := acquire(t, l, "k")
		inner, err := l.Acquire(outer.Context(), "n", "k")
		require.NoError(t, err)
		for _, lock := range []*wllock.Lock{outer, inner} {
			_, err = lock.Detach(ctx, time.Minute)
			require.ErrorContains(t, err, "another guard of the same key")
			require.NoError(t, lock.Err())
		}
		require.NoError(t, inner.Release(ctx))
		token, err := outer.Detach(ctx, time.Minute)
		require.NoError(t, err)
		_, err = outer.Detach(ctx, time.Minute)
		require.ErrorContains(t, err, "released or detached before")
		require.NoError(t, l.ReleaseToken(ctx, token))

		lock := acquire(t, l, "k")
		b.Expire("test:n:k")
		_, err = lock.Detach(ctx, time.Minute)
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
		require.ErrorIs(t, lock.Release(ctx), wllock.ErrLeaseLost)
		require.NoError(t, l.Do(ctx, "n", "k", nothing, wllock.NoWait()))
	})
}

// What became of a Detach without an answer is not known, so nothing of it stays.
func TestDetachWithoutAnAnswerReleasesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		lock := acquire(t, l, "k")
		b.Partition(true)
		token, err := lock.Detach(t.Context(), time.Hour)
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.Empty(t, token)
		require.NoError(t, lock.Release(t.Context()))
		require.ErrorIs(t, context.Cause(lock.Context()), wllock.ErrUnavailable, "what is under it ends")
		b.Partition(false)
		time.Sleep(3 * time.Second) // the outage is over
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

// With LocalOnly a hold without a lease has nothing to give away.
func TestDegradedLockCannotBeDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		b.Partition(true)
		lock := acquire(t, l, "k")
		require.True(t, lock.Degraded())
		_, err := lock.Detach(t.Context(), time.Minute)
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorContains(t, err, "held without a lease (LocalOnly)")
		require.NoError(t, lock.Release(t.Context()))
		b.Partition(false)
	})
}

// The lease of such a Locker is a wrapper of the backend's.
func TestDetachWithLocalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		lock := acquire(t, l, "k")
		for range 2 {
			token, err := lock.Detach(t.Context(), time.Minute)
			require.NoError(t, err)
			lock, err = l.Adopt(t.Context(), token)
			require.NoError(t, err)
		}
		require.NoError(t, lock.Release(t.Context()))
	})
}

// What a name asks for by default, and for how long its callers wait, does not matter to who has a token.
func TestTokensAndTheOptionsOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opt := range []wllock.CallOption{wllock.Shared(), two, wllock.WithHoldAtLeast(time.Hour), wllock.WithWait(1), wllock.NoWait()} {
			l, b := newLocker(t, wllock.WithName("n", opt))
			token, err := acquire(t, lockerOn(t, b), "k").Detach(t.Context(), time.Minute)
			require.NoError(t, err)
			lock, err := l.Adopt(t.Context(), token)
			require.NoError(t, err)
			require.Equal(t, "exclusive", l.Locks(1)[0].Mode)
			token, err = lock.Detach(t.Context(), time.Minute)
			require.NoError(t, err)
			require.NoError(t, l.ReleaseToken(t.Context(), token))
			require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
		}
	})
}

// A reader waits beside the adopted lock, whose mode is shown.
func TestAdoptedLockIsShownAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Minute)
		require.NoError(t, err)
		done := started(l, keys("~k"), nothing)
		lock, err := l.Adopt(t.Context(), token)
		require.NoError(t, err)
		for range 20 { // in any order of its lanes
			require.Equal(t, "exclusive", l.Locks(1)[0].Mode)
		}
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, <-done)
	})
}

// transferring is a backend that notes who adopts, and may panic.
type transferring struct {
	*memlock.Backend
	adopters []string
	panics   bool
}

func (b *transferring) Detach(ctx context.Context, l distributed.Lease, id string, lasts time.Duration) error {
	if b.panics {
		panic("detach")
	}
	return b.Backend.Detach(ctx, l, id, lasts)
}

func (b *transferring) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	b.adopters = append(b.adopters, req.Instance)
	return b.Backend.Adopt(ctx, req, id)
}

// What a request for a token has left at the backend must not end the next one.
func TestEachAdoptionIsAnInstanceOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &transferring{Backend: memlock.New()}
		l := lockerOn(t, b)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Minute)
		require.NoError(t, err)
		lock, err := l.Adopt(t.Context(), token)
		require.NoError(t, err)
		_, err = l.Adopt(t.Context(), token)
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
		require.NotEqual(t, b.adopters[0], b.adopters[1])
		err = l.Do(t.Context(), "n", "k", never(t), wllock.NoWait())
		require.Equal(t, l.Instance(), errorOf(t, err, wllock.ErrHeld, "k").Holder)
		require.NoError(t, lock.Release(t.Context()))
	})
}

func TestBackendThatPanicsInDetach(t *testing.T) { // rule T10
	synctest.Test(t, func(t *testing.T) {
		l := lockerOn(t, &transferring{Backend: memlock.New(), panics: true})
		lock := acquire(t, l, "k")
		require.Panics(t, func() { _, _ = lock.Detach(t.Context(), time.Minute) })
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.Zero(t, l.Stats().Total.Held)
	})
}

// bare is a backend without the ability.
type bare struct{ distributed.Backend }

func TestBackendThatCannotDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l := lockerOn(t, bare{b})
		lock := acquire(t, l, "k")
		_, err := lock.Detach(t.Context(), time.Minute)
		require.ErrorContains(t, err, "cannot detach")
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Release(t.Context()))
	})
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Minute)
		require.NoError(t, err)
		text := string(token)
		secret := text[strings.LastIndexByte(text, '.')+1:]
		for _, shown := range []string{fmt.Sprint(token), fmt.Sprintf("%s %q %v %#v", token, token, token, token)} {
			require.NotContains(t, shown, secret)
		}
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("queued", "token", token)
		require.NotContains(t, log.String(), secret)
		found, err := l.Inspect(t.Context(), "n", "k")
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprintf("%+v", found), secret)

		name := base64.RawURLEncoding.EncodeToString([]byte("other:n:k"))
		for _, bad := range []struct{ token, want string }{
			{"", "want one of Lock.Detach"}, {"wllock9." + text[len("wllock1."):], `begins with "wllock1."`}, {text[:len(text)-1], "damaged"},
			{text + "A", "damaged"}, {"wllock1.." + secret, "damaged"}, {"wllock1." + name + "." + secret, `want one of "test"`},
		} {
			_, err := l.Adopt(t.Context(), wllock.Token(bad.token))
			require.ErrorContains(t, err, bad.want, bad.token)
			require.NotContains(t, err.Error(), secret)
			require.ErrorContains(t, l.ReleaseToken(t.Context(), wllock.Token(bad.token)), bad.want)
		}
		for _, opt := range []wllock.CallOption{wllock.Shared(), wllock.Permits(2), wllock.WithHoldAtLeast(time.Second)} {
			_, err := l.Adopt(t.Context(), token, opt)
			require.ErrorContains(t, err, "a detached lock is exclusive")
		}
		last := "A"
		if text[len(text)-1] == 'A' {
			last = "Q"
		}
		_, err = l.Adopt(t.Context(), wllock.Token(text[:len(text)-1]+last))
		require.ErrorIs(t, err, wllock.ErrLeaseLost, "a secret that was guessed")
		require.NoError(t, l.ReleaseToken(t.Context(), token))
	})
}

// Close waits for an adopted lock as for each other one, and for none that was detached.
func TestCloseAndDetachedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, other := lockerOn(t, b), lockerOn(t, b)
		token, err := acquire(t, l, "k").Detach(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NoError(t, l.Close(t.Context()))
		_, err = l.Adopt(t.Context(), token)
		require.ErrorIs(t, err, wllock.ErrClosed)
		lock, err := other.Adopt(t.Context(), token)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = other.Close(ctx)
		require.ErrorContains(t, err, `1 lock was still held: "test:n:k"`)
		require.ErrorIs(t, context.Cause(lock.Context()), wllock.ErrClosed)
	})
}
