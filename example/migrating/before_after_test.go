package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/redistest"
)

// The bodies of these functions are what docs/migrating.md shows. ship is what a service does with order 42.

func withRedsync(ctx context.Context, rs *redsync.Redsync, ship wllock.Func) error {
	// before, with redsync
	mutex := rs.NewMutex("orders:42")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer func() { _, _ = mutex.UnlockContext(context.WithoutCancel(ctx)) }()
	return ship(ctx)
}

func withBSM(ctx context.Context, client *redislock.Client, ship wllock.Func) error {
	// before, with bsm/redislock
	poll := &redislock.Options{RetryStrategy: redislock.LinearBackoff(50 * time.Millisecond)}
	lock, err := client.Obtain(ctx, "orders:42", 10*time.Second, poll)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()
	return ship(ctx)
}

func withWllock(ctx context.Context, locker *wllock.Locker, ship wllock.Func) error {
	// after
	return locker.Do(ctx, "orders", "42", ship)
}

func withMutex(ctx context.Context, client *clientv3.Client, ship wllock.Func) error {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	// before, with concurrency.Mutex and a session
	mutex := concurrency.NewMutex(session, "/locks/orders/42")
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	defer func() { _ = mutex.Unlock(context.WithoutCancel(ctx)) }()
	return ship(ctx)
}

func withBoth(ctx context.Context, locker *wllock.Locker, client *clientv3.Client, ship wllock.Func) error {
	// during the move
	return locker.Do(ctx, "orders", "42", func(ctx context.Context) error { return withMutex(ctx, client, ship) })
}

// guarded is the method that wllock for Java guards by an annotation. place is what it does.
func guarded(locker *wllock.Locker, place wllock.Func) wllock.Func {
	// after. With Wrap in place of Guard, an argument says the key
	order := locker.Guard("product", "1000", place, wllock.WithWait(time.Second))
	return order
}

// shipping is a service that ships by one of the functions.
func shipping(name string, by func(ctx context.Context, ship wllock.Func) error) service {
	return service{name, func(ctx context.Context, work func()) error {
		return by(ctx, func(context.Context) error { work(); return nil })
	}}
}

// TestBeforeAndAfterShareALock: what the page shows of each library protects one counter, by the settings of its table.
func TestBeforeAndAfterShareALock(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(s *redistest.Server) service{
		"redsync": func(s *redistest.Server) service {
			rs := redsync.New(goredis.NewPool(s.Client()))
			return shipping("before", func(ctx context.Context, ship wllock.Func) error { return withRedsync(ctx, rs, ship) })
		},
		"redislock": func(s *redistest.Server) service {
			client := redislock.New(s.Client())
			return shipping("before", func(ctx context.Context, ship wllock.Func) error { return withBSM(ctx, client, ship) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l := redistest.Start(t), libraries[name]
			people().share(t, enough, before(s), after("after", locker(t, s, l.pattern, l.gap)))
		})
	}
}

func after(name string, l *wllock.Locker) service {
	return shipping(name, func(ctx context.Context, ship wllock.Func) error { return withWllock(ctx, l, ship) })
}

// onEtcd is a Locker on a server.
func onEtcd(t *testing.T, s *etcdtest.Server) *wllock.Locker {
	t.Helper()
	b, err := etcdlock.Open("etcd://" + s.Addr)
	require.NoError(t, err)
	l, err := wllock.New("shop", b, wllock.WithOwnedBackend())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func etcdClient(t *testing.T, s *etcdtest.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// TestEtcdsMutexIsAnotherLock: wllock waits for none, whatever its key is. A mutex waits for wllock if it is at the lock's own key.
func TestEtcdsMutexIsAnotherLock(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	l, session := onEtcd(t, s), sessionOf(t, etcdClient(t, s))
	for key, waits := range map[string]error{"/locks/orders/42": nil, "/wllock/shop:orders:42": concurrency.ErrLocked} {
		mutex := concurrency.NewMutex(session, key)
		require.NoError(t, mutex.TryLock(t.Context()))
		require.NoError(t, l.Do(t.Context(), "orders", "42", nothing, wllock.NoWait(), wllock.SyncRelease()), key)
		require.NoError(t, mutex.Unlock(t.Context()))
		require.NoError(t, l.Do(t.Context(), "orders", "42", func(ctx context.Context) error {
			require.Equal(t, waits, mutex.TryLock(ctx), key)
			return nil
		}, wllock.SyncRelease()))
	}
}

func sessionOf(t *testing.T, c *clientv3.Client) *concurrency.Session {
	t.Helper()
	session, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close()) })
	return session
}

// TestEtcdsMutexInsideWllocksLock: the mutex goes from one service after the other, as Redisson's lock does.
func TestEtcdsMutexInsideWllocksLock(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	client := etcdClient(t, s)
	both := func(name string) service {
		l := onEtcd(t, s)
		return shipping(name, func(ctx context.Context, ship wllock.Func) error { return withBoth(ctx, l, client, ship) })
	}
	old := shipping("old", func(ctx context.Context, ship wllock.Func) error { return withMutex(ctx, client, ship) })
	people().share(t, enough, old, both("new 1"), both("new 2"))
	people().share(t, enough, both("inside"), after("outside", onEtcd(t, s)), after("also outside", onEtcd(t, s)))
}

// javaKey is the lock that wllock for Java calls product, 1000, in the system shop.
const javaKey = "shop:product:1000"

// javaService locks as wllock for Java does: its callers queue, and the first sets the key if there is none, again without a pause. It deletes the key
// when it is done.
func javaService(s *redistest.Server) service {
	client, gate := s.Client(), make(chan struct{}, 1)
	return service{"java", func(ctx context.Context, work func()) error {
		gate <- struct{}{}
		defer func() { <-gate }()
		for client.SetArgs(ctx, javaKey, "", redis.SetArgs{Mode: "NX", TTL: 10 * time.Second}).Err() != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		work()
		return client.Del(context.WithoutCancel(ctx), javaKey).Err()
	}}
}

// TestJavasLockHasTheSameKey: with the page's gap neither starves, though no caller pauses.
func TestJavasLockHasTheSameKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	moved := func(name string) service {
		l := locker(t, s, config.Default().RedisKey, 5*time.Millisecond)
		return service{name, func(ctx context.Context, work func()) error {
			return guarded(l, func(context.Context) error { work(); return nil })(ctx)
		}}
	}
	busy := &crowd{callers: 2, work: time.Millisecond}
	busy.share(t, enough, javaService(s), moved("new 1"), moved("new 2"))
}

// TestJavasLockFreesWhatItDoesNotHold: one that took longer than its lock lasts deletes that of the next holder, who learns of it by a renewal.
func TestJavasLockFreesWhatItDoesNotHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := locker(t, s, config.Default().RedisKey, 0), locker(t, s, config.Default().RedisKey, 0)
	s.Do("SET", javaKey, "", "PX", 50) // by the Java service
	err := one.Do(t.Context(), "product", "1000", func(ctx context.Context) error {
		s.Do("DEL", javaKey)
		require.NoError(t, other.Do(ctx, "product", "1000", nothing, wllock.NoWait()), "two hold it")
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, wllock.ErrLeaseLost)
}
