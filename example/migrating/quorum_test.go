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

	release, ok := old.try(t.Context())
	require.True(t, ok)
	require.ErrorIs(t, new1.Do(t.Context(), "orders", "42", nothing, wllock.NoWait()), wllock.ErrHeld)
	release()
	require.NoError(t, new1.Do(t.Context(), "orders", "42", func(ctx context.Context) error {
		_, ok := old.try(ctx)
		require.False(t, ok)
		return nil
	}))

	people().share(t, enough, on("new 1", new1, one), on("new 2", new2, one), service{"old", old.turn})
}

func redsyncOn(servers []*redistest.Server) process {
	var pools []redsyncredis.Pool
	for _, s := range servers {
		pools = append(pools, goredis.NewPool(s.Client()))
	}
	return mutexes(redsync.New(pools...), quorumKey, redsync.WithRetryDelay(20*time.Millisecond))
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
