package local_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/wllock/wllock/local"
)

var benchAsk = local.Ask{Limit: local.Unlimited}

func newBenchQueue() *local.Queue[int] { return local.New(func(string, int, int) int { return 0 }) }

// BenchmarkFreeKey is the cost of an uncontended key; BenchmarkSemaphore is the reference: one lock, without keys.
func BenchmarkFreeKey(b *testing.B) {
	q, ctx := newBenchQueue(), context.Background()
	var turn local.Turn[int]
	b.ReportAllocs()
	for b.Loop() {
		_ = q.Enter(ctx, &turn, "order:product:1000", benchAsk)
		turn.Leave()
	}
}

func BenchmarkSemaphore(b *testing.B) {
	s, ctx := semaphore.NewWeighted(1), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = s.Acquire(ctx, 1)
		s.Release(1)
	}
}

// BenchmarkHandOver has many goroutines queue for one key; an operation is one turn.
func BenchmarkHandOver(b *testing.B) {
	crowds(b, func(ctx context.Context) (use func()) {
		q := newBenchQueue()
		return func() {
			var turn local.Turn[int]
			_ = q.Enter(ctx, &turn, "order:product:1000", benchAsk)
			if turn.Pass() == local.Kept {
				turn.Leave()
			}
		}
	})
}

func BenchmarkSemaphoreHandOver(b *testing.B) {
	crowds(b, func(ctx context.Context) (use func()) {
		s := semaphore.NewWeighted(1)
		return func() {
			_ = s.Acquire(ctx, 1)
			s.Release(1)
		}
	})
}

// crowds shares b.N uses of a new lock among ever more goroutines.
func crowds(b *testing.B, lock func(context.Context) (use func())) {
	for _, n := range []int{2, 64, 1024} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			use := lock(context.Background())
			var all sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			for range n {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						use()
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkOwnKeys shows that callers of different keys do not contend.
func BenchmarkOwnKeys(b *testing.B) {
	q := newBenchQueue()
	var workers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var turn local.Turn[int]
		ctx, key := context.Background(), fmt.Sprintf("order:product:%d", workers.Add(1))
		for pb.Next() {
			_ = q.Enter(ctx, &turn, key, benchAsk)
			turn.Leave()
		}
	})
}
