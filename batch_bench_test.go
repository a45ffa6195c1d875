package wllock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

func benchGuard(l *wllock.Locker, work func(context.Context, batch) error) func(context.Context, int) (int, error) {
	return wllock.WrapBatch(l, "product", func(int) string { return "1000" }, work)
}

// BenchmarkBatch is a call of a batch guard without contention: compare BenchmarkWrap.
func BenchmarkBatch(b *testing.B) {
	l, _ := newLocker(b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	call, ctx := benchGuard(l, doubling), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = call(ctx, 1)
	}
}

// BenchmarkWrap is a guarded call with an argument and a result.
func BenchmarkWrap(b *testing.B) {
	l, _ := newLocker(b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	call := wllock.Wrap(l, "product", func(int) string { return "1000" }, func(_ context.Context, a int) (int, error) { return 2 * a, nil })
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = call(ctx, 1)
	}
}

// BenchmarkBatchHot is many callers for one key.
func BenchmarkBatchHot(b *testing.B) {
	l, _ := newLocker(b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	call := benchGuard(l, doubling)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = call(context.Background(), 1)
		}
	})
}

// BenchmarkBatchOfWork has 4 instances with 64 callers each do 1 ms of work: an operation is one call. One at a time it takes 1 ms.
func BenchmarkBatchOfWork(b *testing.B) {
	for _, max := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("max=%d", max), func(b *testing.B) {
			backend := memlock.New()
			var all sync.WaitGroup
			calls := make(chan int, 256)
			for range 4 {
				l := lockerOn(b, backend, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
				call := wllock.WrapBatch(l, "product", func(int) string { return "1000" }, doublingSlowly(time.Millisecond), wllock.WithMaxBatch(max))
				for range 64 {
					all.Go(func() {
						for a := range calls {
							_, _ = call(context.Background(), a)
						}
					})
				}
			}
			for i := 0; b.Loop(); i++ {
				calls <- i
			}
			close(calls)
			all.Wait()
		})
	}
}

func TestABatchedCallAllocatesLittle(t *testing.T) {
	l, _ := newLocker(t)
	wrapped := wllock.Wrap(l, "product", func(int) string { return "1000" }, func(_ context.Context, a int) (int, error) { return a, nil })
	call, ctx := benchGuard(l, doubling), context.Background()
	plain := testing.AllocsPerRun(1000, func() { _, _ = wrapped(ctx, 1) })
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = call(ctx, 1) }), plain+1)
}
