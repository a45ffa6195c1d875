package stack_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func fiveServers(t *testing.T) []*redistest.Server {
	all := make([]*redistest.Server, 5)
	for i := range all {
		all[i] = redistest.Start(t)
	}
	return all
}

// openRedlock opens a backend with fences on servers that were never used.
func openRedlock(t *testing.T, all []*redistest.Server) *redlock.Backend {
	var clients []redis.UniversalClient
	for _, s := range all {
		clients = append(clients, s.Client())
	}
	b, err := redlock.New(clients, redlock.WithQuorumFences())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Probe(t.Context(), distributed.Probe{Key: "shop:", TTL: time.Second})) // so that it knows the system
	require.NoError(t, b.Vouch(t.Context()))
	return b
}

// hotKey has instances compete for one key for a time. It checks exclusion and fences, and returns the turns of each instance.
func hotKey(t *testing.T, instances, goroutines int, lasts time.Duration, opts ...wllock.Option) []int64 {
	const system = "shop"
	servers := fiveServers(t)
	turns := make([]atomic.Int64, instances)
	var fence uint64 // guarded by the lock, so the race detector sees a second holder
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var callers sync.WaitGroup
	var lockers []*wllock.Locker
	for i := range instances {
		locker, err := wllock.New(system, openRedlock(t, servers), opts...)
		require.NoError(t, err)
		lockers = append(lockers, locker)
		for range goroutines {
			callers.Go(func() {
				for ctx.Err() == nil {
					_ = locker.Do(ctx, "product", "hot", func(ctx context.Context) error {
						held, _ := wllock.HeldFrom(ctx)
						assert.Greater(t, held.Fence(), fence)
						fence = held.Fence()
						turns[i].Add(1)
						return nil
					})
				}
			})
		}
	}
	callers.Wait()
	for _, l := range lockers {
		require.NoError(t, l.Close(context.Background()))
	}
	counts := make([]int64, instances)
	for i := range turns {
		counts[i] = turns[i].Load()
	}
	return counts
}

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe, 1984: 1 if all have the same.
func jain(counts []int64) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(counts)) * squares)
}

func total(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Eight instances on one hot key of five servers: one holder at a time, fences in the order of entry, a fair share for each
// instance, and tenures that are worth it.
func TestHotKeyOnFiveServers(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	lasts := testscope.Scale(4*time.Second, 20*time.Second)
	fair := wllock.WithMaxTenure(20 * time.Millisecond) // so that the test sees many tenures of each
	tenures := hotKey(t, 8, 16, lasts, fair)
	single := hotKey(t, 8, 16, lasts, wllock.WithMaxHandoffs(0))
	t.Logf("with tenures %d, Jain %.3f; every turn over the servers %d, Jain %.3f",
		total(tenures), jain(tenures), total(single), jain(single))
	assert.GreaterOrEqual(t, jain(tenures), 0.9)
	assert.GreaterOrEqual(t, jain(single), 0.9)
	assert.Greater(t, total(tenures), 5*total(single), "20 times, on a machine that does nothing else")
}
