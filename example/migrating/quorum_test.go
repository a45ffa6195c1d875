package migrating

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/internal/redistest"
)

// quorumKey has the three parts of a lock's name: on independent servers there is no other.
const quorumKey = "shop:orders:42"

// TestQuorum: redsync on three servers beside wllock on the same.
func TestQuorum(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	old, new1, new2 := redsyncOn(servers), redlockOn(t, servers), redlockOn(t, servers)

	m := old.NewMutex(quorumKey)
	require.NoError(t, m.LockContext(t.Context()))
	require.ErrorIs(t, new1.Do(t.Context(), "orders", "42", nothing, wllock.NoWait()), wllock.ErrHeld)
	_, err := m.Unlock()
	require.NoError(t, err)
	require.NoError(t, new1.Do(t.Context(), "orders", "42", func(ctx context.Context) error {
		require.Error(t, old.NewMutex(quorumKey).TryLockContext(ctx))
		return nil
	}))

	people().share(t, enough, quorumOurs("new 1", new1), quorumOurs("new 2", new2), service{"old", func(ctx context.Context, work func()) error {
		m := old.NewMutex(quorumKey, redsync.WithRetryDelay(20*time.Millisecond))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		defer func() { _, _ = m.Unlock() }()
		work()
		return nil
	}})
}

func redsyncOn(servers []*redistest.Server) *redsync.Redsync {
	var pools []redsyncredis.Pool
	for _, s := range servers {
		pools = append(pools, goredis.NewPool(s.Client()))
	}
	return redsync.New(pools...)
}

func redlockOn(t *testing.T, servers []*redistest.Server) *wllock.Locker {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	b, err := redlock.Open("redlock://"+strings.Join(addrs, ","), redlock.WithLongestTTL(8*time.Second)) // that of redsync
	require.NoError(t, err)
	l, err := wllock.New("shop", b, wllock.WithOwnedBackend())
	require.NoError(t, err)
	require.NoError(t, l.Ping(t.Context()))  // so that the backend knows the system
	require.NoError(t, b.Vouch(t.Context())) // no server has forgotten anything: they are new
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func quorumOurs(name string, l *wllock.Locker) service {
	return service{name, func(ctx context.Context, work func()) error {
		return l.Do(ctx, "orders", "42", func(context.Context) error { work(); return nil })
	}}
}
