package redislock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
)

// BenchmarkPermits is how much of 8 permits is used: 4 instances, whose callers work for 5 ms, or half of that more or less. An operation is
// an entry. With as many callers as there are permits nobody should wait; the rest is what it takes to enter.
func BenchmarkPermits(b *testing.B) {
	for _, callers := range []int{64, 2} {
		b.Run(fmt.Sprintf("4x%d", callers), func(b *testing.B) { benchmarkPermits(b, 8, callers) })
	}
	b.Run("4x64, every turn over Redis", func(b *testing.B) { benchmarkPermits(b, 8, 64, wllock.WithMaxHandoffs(0)) })
}

func benchmarkPermits(b *testing.B, permits, callers int, opts ...wllock.Option) {
	const work = 5 * time.Millisecond
	s := redistest.Start(b)
	var left, busy, inside, over atomic.Int64
	left.Store(int64(b.N))
	var mu sync.Mutex
	var waits []time.Duration // guarded by mu
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 4 {
		backend, err := redislock.Open("redis://" + s.Addr)
		require.NoError(b, err)
		l, err := wllock.New("shop", backend, append(opts, wllock.WithOwnedBackend())...)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, l.Close(context.Background())) })
		for range callers {
			all.Go(func() {
				<-start
				for left.Add(-1) >= 0 {
					asked := time.Now()
					err := l.Do(b.Context(), "partner", "acme", func(context.Context) error {
						began := time.Now()
						if inside.Add(1) > int64(permits) {
							over.Add(1)
						}
						time.Sleep(work/2 + rand.N(work))
						inside.Add(-1)
						busy.Add(int64(time.Since(began)))
						mu.Lock()
						waits = append(waits, began.Sub(asked))
						mu.Unlock()
						return nil
					}, wllock.Permits(permits))
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	b.ResetTimer()
	began := time.Now()
	close(start)
	all.Wait()
	took := time.Since(began)
	b.StopTimer()
	slices.Sort(waits)
	require.Zero(b, over.Load(), "too many inside")
	b.ReportMetric(100*float64(busy.Load())/float64(took)/float64(permits), "%of-permits")
	b.ReportMetric(float64(took.Microseconds())*float64(permits)/float64(len(waits))-float64(busy.Load())/1000/float64(len(waits)), "µs-between-holders")
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-wait-ms")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-wait-ms")
}
