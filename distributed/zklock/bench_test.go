package zklock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// instance locks a key for its goroutines; shared is a reader's lock.
type instance func(ctx context.Context, shared bool, fn func()) error

// BenchmarkHold compares with the Lock of the client library, which knows no readers: all are exclusive there. Each operation is
// one lock, work that takes no time, and an unlock.
func BenchmarkHold(b *testing.B) {
	for _, load := range []struct {
		name                  string
		instances, goroutines int
		writers               float64
	}{
		{"1x1", 1, 1, 1},
		{"hot8x16", 8, 16, 1},
		{"readers8writers2", 8, 16, 0.2},
	} {
		for _, kind := range []struct {
			name string
			make func(testing.TB, string) instance
		}{{"wllock", wllockInstance}, {"everyTurn", everyTurnInstance}, {"zkLock", zkInstance}} {
			b.Run(load.name+"/"+kind.name, func(b *testing.B) {
				need(b)
				root := newRoot()
				all := make([]instance, load.instances)
				for i := range all {
					all[i] = kind.make(b, root)
				}
				b.ResetTimer()
				hammer(b, all, load.goroutines, load.writers)
			})
		}
	}
}

// hammer runs b.N operations, and reports how evenly they were spread over the instances.
func hammer(b *testing.B, all []instance, goroutines int, writers float64) {
	var left atomic.Int64
	left.Store(int64(b.N))
	counts := make([]atomic.Int64, len(all))
	var wg sync.WaitGroup
	start := time.Now()
	for i, one := range all {
		for range goroutines {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := one(context.Background(), rand.Float64() >= writers, func() {}); err != nil {
						b.Error(err)
						return
					}
					counts[i].Add(1)
				}
			})
		}
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "holds/s")
	b.ReportMetric(jain(counts), "jain")
}

// jain is Jain's index of fairness: 1 if all have the same.
func jain(counts []atomic.Int64) float64 {
	var sum, squares float64
	for i := range counts {
		n := float64(counts[i].Load())
		sum += n
		squares += n * n
	}
	return sum * sum / (float64(len(counts)) * squares)
}

func wllockInstance(t testing.TB, root string) instance { return lockerInstance(t, root) }

func everyTurnInstance(t testing.TB, root string) instance {
	return lockerInstance(t, root, wllock.WithMaxHandoffs(0))
}

func lockerInstance(t testing.TB, root string, opts ...wllock.Option) instance {
	locker, err := wllock.New("bench", open(t, server.Addr, root), append(opts, wllock.WithThreshold(wllock.Unlimited))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	return func(ctx context.Context, shared bool, fn func()) error {
		var opts []wllock.CallOption
		if shared {
			opts = append(opts, wllock.Shared())
		}
		return locker.Do(ctx, "hot", "key", func(context.Context) error { fn(); return nil }, opts...)
	}
}

func zkInstance(t testing.TB, root string) instance {
	conn := plainConn(t, server.Addr)
	return func(context.Context, bool, func()) error {
		l := zk.NewLock(conn, root+"/hot", zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return l.Unlock()
	}
}
