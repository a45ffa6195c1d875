package config_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redisopts"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// use acquires and releases a lock in the backend that the Config names.
func use(t *testing.T, c config.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	locker, err := c.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, locker.Do(ctx, "product", "1", func(ctx context.Context) error {
		held, ok := wllock.HeldFrom(ctx)
		require.True(t, ok)
		require.NotZero(t, held.Fence())
		return nil
	}))
	require.NoError(t, locker.Close(ctx))
}

func TestOpenRedis(t *testing.T) {
	t.Parallel()
	use(t, at("redis://"+redistest.Start(t).Addr+"/3"))
}

func TestOpenRedisWithCredentials(t *testing.T) {
	t.Parallel()
	const password = "hun ter/2@%"
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "locks", "on", ">"+password, "~*", "&*", "+@all")
	server.Do("ACL", "SETUSER", "default", "off")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))

	c := at("redis://" + server.Addr)
	c.RedisUsername = "locks"
	_, err := c.Open(t.Context())
	require.ErrorIs(t, err, wllock.ErrUnavailable, "no password")

	c.RedisPasswordFile = file
	use(t, c)
	c.RedisPasswordFile, c.RedisPassword = "", config.NewSecret(password+"\n")
	use(t, c)

	c.RedisPassword = config.NewSecret("wrong-" + password)
	_, err = c.Open(t.Context())
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.NotContains(t, err.Error(), password)
}

// A user without a password logs in under its own name, which works for one that needs none, and never runs as the default user.
func TestOpenRedisAsAUserWithoutAPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "free", "on", "nopass", "~order:*", "~wllock:order:*", "&wllock:order:*", "+@all")
	server.Do("ACL", "SETUSER", "locks", "on", ">hunter2", "~*", "&*", "+@all")
	for _, by := range []func(user string) config.Config{
		func(user string) config.Config {
			c := at("redis://" + server.Addr)
			c.RedisUsername = user
			return c
		},
		func(user string) config.Config { return at("redis://" + user + "@" + server.Addr) },
	} {
		c := by("free")
		use(t, c)
		c.SystemName = "mall"
		_, err := c.Open(t.Context())
		require.ErrorContains(t, err, "the user lacks the ACL rule ~mall:*", "the default user does not")
		_, err = by("locks").Open(t.Context())
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorContains(t, err, "WRONGPASS")
	}
}

// One setting is enough for the warnings of both, the Locker and its backend.
func TestOpenGivesItsLoggerToTheBackend(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
	c := at("redis://" + server.Addr)
	var log strings.Builder
	locker, err := c.Open(t.Context(), wllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), wllock.WithThreshold(1))
	require.NoError(t, err)
	require.NoError(t, locker.Close(t.Context()))
	require.Contains(t, log.String(), "maxmemory-policy=allkeys-lru")

	_, err = c.Open(t.Context(), wllock.WithLogger(nil))
	require.ErrorContains(t, err, "WithLogger(nil): want a logger")
}

// A service that moves to wllock shares the keys of those that have not.
func TestOpenWithTheKeysOfOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "shop", "on", ">pw", "~lock:*", "~wllock:lock:*", "&wllock:lock:*", "+@all")
	c := at("redis://shop:pw@" + server.Addr)
	_, err := c.Open(t.Context())
	require.ErrorContains(t, err, "the user lacks the ACL rule ~order:*")
	c.RedisKey, c.RedisInteropGap = "lock:{key}", 300*time.Millisecond
	locker, err := c.Open(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close(context.Background())) }()

	other := server.Client()
	waiter := make(chan error, 1)
	require.NoError(t, locker.Do(t.Context(), "product", "42", func(context.Context) error {
		require.EqualValues(t, 1, other.Exists(t.Context(), "lock:42").Val())
		second, err := c.Open(t.Context())
		require.NoError(t, err)
		go func() {
			waiter <- second.Do(context.Background(), "product", "42", func(context.Context) error { return nil })
			_ = second.Close(context.Background())
		}()
		require.Eventually(t, func() bool { return len(second.Locks(1)) == 1 && second.Locks(1)[0].AtBackend }, 5*time.Second, time.Millisecond)
		return nil
	}))
	require.Eventually(t, func() bool { return other.SetNX(t.Context(), "lock:42", "mine", time.Minute).Val() }, 250*time.Millisecond, time.Millisecond,
		"the gap is for those that poll")
	require.NoError(t, other.Del(t.Context(), "lock:42").Err())
	require.NoError(t, <-waiter)

	c.RedisKey, c.SystemName = "{system}:{key}", "mall"
	_, err = c.Open(t.Context())
	require.ErrorContains(t, err, "the user lacks the ACL rule ~mall:*")
	c.Backend, c.RedisReplicaAcks, c.RedisAcksWithin = config.NewURL("redlock://a,b,c"), 1, c.LeaseTTL/2+1
	_, err = c.Open(t.Context())
	require.ErrorContains(t, err, "WLLOCK_REDIS_REPLICA_ACKS is set, but WLLOCK_BACKEND is Redlock")
	require.ErrorContains(t, err, "is more than half of WLLOCK_LEASE_TTL")
	require.ErrorContains(t, err, "WLLOCK_REDIS_KEY is set, but WLLOCK_BACKEND is Redlock")
	require.ErrorContains(t, err, "WLLOCK_REDIS_INTEROP_GAP is set, but WLLOCK_BACKEND is Redlock")
}

// A prefix keeps locks apart from what the application keeps under their names, with the rule that docs/redis.md names.
func TestOpenWithAPrefix(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "shop", "on", ">pw", "~locks-shop:*", "~wllock:locks-shop:*", "&wllock:locks-shop:*", "+@all")
	server.Do("SET", "shop:product:1", "a cache's entry, which never expires")
	c := at("redis://shop:pw@" + server.Addr)
	c.SystemName, c.RedisKey = "shop", "locks-{system}:{name}:{key}"
	use(t, c)
}

func TestOpenSentinel(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	use(t, at("redis+sentinel://"+strings.Join(redistest.StartSentinel(t).Addrs(), ",")+"/"+redistest.MasterName))
}

func TestOpenCluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	use(t, at("redis+cluster://"+strings.Join(redistest.StartCluster(t).Addrs(), ",")))
}

func TestOpenRedlock(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 3 {
		s := redistest.Start(t)
		s.Do("CONFIG", "SET", "requirepass", "open sesame")
		addrs = append(addrs, s.Addr)
	}
	c := at("redlock://" + strings.Join(addrs, ",") + "?fences=quorum")
	c.LeaseTTL = time.Second // servers that were never used count after one TTL
	c.RedisPassword = config.NewSecret("open sesame")
	use(t, c)
}

// redislock opens every scheme that config gives it.
func TestEveryRedisSchemeIsOpened(t *testing.T) {
	for _, scheme := range redisopts.Schemes() {
		if s, _ := redisopts.SchemeOf(scheme); s.Kind == redisopts.KindRedlock {
			continue // by redlock
		}
		b, err := redislock.Open(scheme + "://localhost/primary") // the path is wrong for some
		if err == nil {
			require.NoError(t, b.Close())
			continue
		}
		require.NotContains(t, err.Error(), "unknown scheme")
	}
}
