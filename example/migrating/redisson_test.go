package migrating

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func java(s *redistest.Server) Redisson {
	return Redisson{Client: s.Client(func(o *redis.Options) { o.PoolSize = 20 })}
}

// inside is how a service in Go locks while Java services are left, outside what it does without them.
func inside(t *testing.T, s *redistest.Server, name string) service {
	t.Helper()
	r, l := java(s), locker(t, s, config.Default().RedisKey, 0)
	return service{name, func(ctx context.Context, work func()) error {
		return l.Do(ctx, "orders", "42", func(ctx context.Context) error {
			return r.Do(ctx, key, func(context.Context) error { work(); return nil })
		})
	}}
}

func outside(t *testing.T, s *redistest.Server, name string) service {
	t.Helper()
	return ours(t, s, name, library{pattern: config.Default().RedisKey, do: one}, 0)
}

// TestRedissonCannotShareAKey: wllock waits for Redisson's hash, but Redisson fails on wllock's string.
func TestRedissonCannotShareAKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	j, l := startJVM(t, s), locker(t, s, "{name}:{key}", 0)
	require.NoError(t, j.lock(t.Context(), "1"))
	require.NoError(t, j.lock(t.Context(), "1"), "it is reentrant")
	require.ErrorIs(t, l.Do(t.Context(), "orders", "42", nothing, wllock.NoWait()), wllock.ErrHeld)
	require.NoError(t, j.unlock("1"))
	require.NoError(t, j.unlock("1"))
	require.NoError(t, l.Do(t.Context(), "orders", "42", func(ctx context.Context) error {
		require.ErrorContains(t, j.lock(ctx, "1"), "WRONGTYPE")
		return nil
	}))
}

func nothing(context.Context) error { return nil }

// TestRedissonStep1SameKey: both mean the same lock.
func TestRedissonStep1SameKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	j, r := startJVM(t, s), java(s)
	require.NoError(t, r.Do(t.Context(), key, func(ctx context.Context) error {
		left, err := j.tryLock(ctx, "1")
		require.NoError(t, err)
		require.InDelta(t, leaseTime, left, float64(time.Second))
		return nil
	}))
	locked := make(chan error, 1)
	require.NoError(t, r.Do(t.Context(), key, func(context.Context) error {
		go func() { locked <- j.lock(t.Context(), "1") }()
		time.Sleep(100 * time.Millisecond) // until it waits: with a try it would learn of the release at the end of the lease only
		return nil
	}))
	select {
	case err := <-locked:
		require.NoError(t, err)
	case <-time.After(leaseTime / 2):
		t.Fatal("not told of the release")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Do(ctx, key, nothing), context.DeadlineExceeded)
	require.NoError(t, j.unlock("1"))
	require.NoError(t, r.Do(t.Context(), key, nothing))
	require.EqualValues(t, 0, s.Do("EXISTS", key))
}

func TestRedissonStep2TheFirstServiceMoves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	people().share(t, enough, service{"java 1", startJVM(t, s).turn}, service{"java 2", startJVM(t, s).turn}, inside(t, s, "new"))
}

func TestRedissonStep3TheLastOneIsLeft(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	people().share(t, enough, service{"java", startJVM(t, s).turn}, inside(t, s, "new 1"), inside(t, s, "new 2"))
}

func TestRedissonStep4TheInnerLockGoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	people().share(t, enough, inside(t, s, "inside"), outside(t, s, "outside"), outside(t, s, "also outside"))
}

func TestRedissonIsRenewed(t *testing.T) {
	testscope.Long(t, "it has failed by chance: see CONTRIBUTING.md")
	t.Parallel()
	s := redistest.Start(t)
	r := java(s)
	r.Watchdog = 600 * time.Millisecond
	require.NoError(t, r.Do(t.Context(), key, func(ctx context.Context) error {
		time.Sleep(2 * r.Watchdog)
		left, err := startJVM(t, s).tryLock(ctx, "1")
		require.NoError(t, err)
		require.Positive(t, left)
		return ctx.Err()
	}))
}

func TestRedissonIsLost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, lose := range map[string]func(){
		"deleted":     func() { s.Do("DEL", key) },
		"of another":  func() { s.Do("DEL", key); s.Do("HSET", key, "another:1", 1) },
		"unreachable": func() { s.Do("CLIENT", "PAUSE", 800, "ALL") },
	} {
		t.Run(name, func(t *testing.T) {
			defer s.Do("DEL", key)
			r := java(s)
			r.Watchdog = 300 * time.Millisecond
			failed := errors.New("mine")
			err := r.Do(t.Context(), key, func(ctx context.Context) error {
				lose()
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), ErrLost)
				return failed
			})
			require.ErrorIs(t, err, ErrLost)
			require.ErrorIs(t, err, failed)
		})
	}
}

// A Java service that died holds the lock until it expires, and nobody sends a message.
func TestRedissonOfADeadServiceExpires(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("HSET", key, "dead:1", 1)
	s.Do("PEXPIRE", key, 200)
	require.NoError(t, java(s).Do(t.Context(), key, nothing))
	require.EqualValues(t, 0, s.Do("EXISTS", key))
}

func TestRedissonChannelOfATaggedKey(t *testing.T) {
	t.Parallel()
	require.Equal(t, "redisson_lock__channel:{orders:42}", channel("orders:42"))
	require.Equal(t, "redisson_lock__channel:{orders}:42", channel("{orders}:42"))
}
