// Package quorum has wllock and redsync on the same five Redis servers.
//
//	go test -run '^$' -bench . ./internal/quorum
package quorum

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/internal/redistest"
)

const (
	ttl     = 5 * time.Second
	servers = 5
	// retryDelay is redsync's pause between tries, several times shorter than its default of 50 to 250 ms, which is slower here.
	retryDelay = 5 * time.Millisecond
)

func start(t testing.TB) []*redistest.Server {
	all := make([]*redistest.Server, servers)
	for i := range all {
		all[i] = redistest.Start(t)
	}
	return all
}

// locked runs f while it has the lock of a key.
type locked func(ctx context.Context, key string, f func()) error

func withWllock(t testing.TB, all []*redistest.Server, opts ...wllock.Option) locked {
	var clients []redis.UniversalClient
	for _, s := range all {
		clients = append(clients, s.Client())
	}
	b, err := redlock.New(clients)
	require.NoError(t, err)
	require.NoError(t, b.Vouch(t.Context()))
	l, err := wllock.New("bench", b, append(opts, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(ttl))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return func(ctx context.Context, key string, f func()) error {
		return l.Do(ctx, "k", key, func(context.Context) error { f(); return nil })
	}
}

func withRedsync(t testing.TB, all []*redistest.Server) locked {
	var pools []pool.Pool
	for _, s := range all {
		pools = append(pools, goredis.NewPool(s.Client(func(o *redis.Options) { o.PoolSize = 128 })))
	}
	sync := redsync.New(pools...)
	return func(ctx context.Context, key string, f func()) error {
		m := sync.NewMutex("bench:k:"+key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(retryDelay))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		f()
		_, err := m.UnlockContext(ctx)
		return err
	}
}

// Clients of both kinds on the same keys exclude each other, and each gets its turns.
func TestRedsyncAndWllockExcludeEachOther(t *testing.T) {
	t.Parallel()
	all := start(t)
	kinds := []locked{withWllock(t, all, wllock.WithMaxHandoffs(0)), withWllock(t, all), withRedsync(t, all), withRedsync(t, all)}
	var inside [2]atomic.Int32
	turns := make([]atomic.Int32, len(kinds))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var callers sync.WaitGroup
	for i, do := range kinds {
		for key := range inside {
			callers.Go(func() {
				for ctx.Err() == nil {
					err := do(ctx, fmt.Sprint(key), func() {
						if n := inside[key].Add(1); n != 1 {
							t.Errorf("%d holders of key %d", n, key)
						}
						time.Sleep(time.Millisecond)
						inside[key].Add(-1)
						turns[i].Add(1)
					})
					if err == nil {
						time.Sleep(10 * time.Millisecond) // a busy lock has no gap for others
					}
				}
			})
		}
	}
	callers.Wait()
	for i := range turns {
		require.Positive(t, turns[i].Load(), "client %d", i)
		t.Logf("client %d: %d turns", i, turns[i].Load())
	}
}

// One hot key: operations per second, and the 99th percentile of the time for one.
func BenchmarkFiveServers(b *testing.B) {
	kinds := map[string]func(testing.TB, []*redistest.Server) locked{
		"redsync": withRedsync,
		"wllock":  func(t testing.TB, all []*redistest.Server) locked { return withWllock(t, all) },
		"wllock-every-turn": func(t testing.TB, all []*redistest.Server) locked {
			return withWllock(t, all, wllock.WithMaxHandoffs(0))
		},
	}
	for _, size := range []struct{ instances, goroutines int }{{1, 1}, {1, 64}, {8, 16}} {
		for _, name := range []string{"redsync", "wllock", "wllock-every-turn"} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.instances, size.goroutines, name), func(b *testing.B) {
				all := start(b)
				var instances []locked
				for range size.instances {
					instances = append(instances, kinds[name](b, all))
				}
				measure(b, instances, size.goroutines)
			})
		}
	}
}

func measure(b *testing.B, instances []locked, goroutines int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, len(instances)*goroutines)
	counter := 0 // guarded by the lock
	var callers sync.WaitGroup
	b.ResetTimer()
	for i := range took {
		do := instances[i%len(instances)]
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := do(b.Context(), "hot", func() { counter++ }); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	require.Equal(b, b.N, counter)
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
}
