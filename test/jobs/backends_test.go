package jobs

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/zklock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// backends opens backends on the same servers, each with connections of its own.
var backends = map[string]func(t *testing.T) (open func() (distributed.Backend, error), ttl time.Duration){
	"Redis": func(t *testing.T) (func() (distributed.Backend, error), time.Duration) {
		addr := redistest.Start(t).Addr
		return func() (distributed.Backend, error) { return redislock.Open("redis://" + addr) }, time.Second
	},
	"Redlock": func(t *testing.T) (func() (distributed.Backend, error), time.Duration) {
		var clients []redis.UniversalClient
		for range 3 {
			clients = append(clients, redistest.Start(t).Client())
		}
		first, err := redlock.New(clients)
		require.NoError(t, err)
		require.NoError(t, first.Probe(t.Context(), distributed.Probe{Key: "test:", TTL: time.Second})) // so that it knows the system
		require.NoError(t, first.Vouch(t.Context()))
		require.NoError(t, first.Close())
		return func() (distributed.Backend, error) { return redlock.New(clients) }, time.Second
	},
	"ZooKeeper": func(t *testing.T) (func() (distributed.Backend, error), time.Duration) {
		addr := zktest.Start(t).Addr
		return func() (distributed.Backend, error) { return zklock.New([]string{addr}) }, 5 * time.Second
	},
}

// TestEveryBackendKeepsALockTaken: until d has passed, and no longer if nobody has died; and until then at least if the Locker
// is closed, with its backend.
func TestEveryBackendKeepsALockTaken(t *testing.T) { // rules N2 and N3
	const least = 1500 * time.Millisecond
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, ttl := start(t)
			locker := func() *wllock.Locker {
				b, err := open()
				require.NoError(t, err)
				return testlocker.On(t, b, wllock.WithLeaseTTL(ttl), wllock.WithOwnedBackend())
			}
			other := locker()
			for _, close := range []bool{false, true} {
				l := locker()
				begin := time.Now()
				require.NoError(t, l.Do(t.Context(), "cron", "job", testlocker.Nothing, wllock.WithHoldAtLeast(least)))
				if close {
					require.NoError(t, l.Close(t.Context()))
				}
				require.ErrorIs(t, other.Do(t.Context(), "cron", "job", testlocker.Never(t), wllock.NoWait()), wllock.ErrHeld)
				require.NoError(t, other.Do(t.Context(), "cron", "job", testlocker.Nothing))
				took := time.Since(begin)
				require.GreaterOrEqual(t, took, least)
				t.Logf("closed: %v; free after %v", close, took)
				testscope.InTime(t, took, 10*time.Second+4*ttl, "the lock")
			}
		})
	}
}

// TestTooLongForTheBackend: a ZooKeeper server grants sessions of 20 ticks at most.
func TestTooLongForTheBackend(t *testing.T) { // rule N2
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	b, err := zklock.New([]string{zktest.Start(t).Addr})
	require.NoError(t, err)
	l := testlocker.On(t, b, wllock.WithOwnedBackend())
	err = l.Do(t.Context(), "cron", "job", testlocker.Never(t), wllock.NoWait(), wllock.WithHoldAtLeast(time.Hour))
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorContains(t, err, "the lock is to stay taken for 1h0m0s")
	require.NoError(t, l.Do(t.Context(), "cron", "job", testlocker.Nothing, wllock.NoWait()), "at once: nothing is left")
}
