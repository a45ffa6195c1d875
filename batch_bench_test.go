package wllock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
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

func TestABatchedCallAllocatesLittle(t *testing.T) {
	l, _ := newLocker(t)
	wrapped := wllock.Wrap(l, "product", func(int) string { return "1000" }, func(_ context.Context, a int) (int, error) { return a, nil })
	call, ctx := benchGuard(l, doubling), context.Background()
	plain := testing.AllocsPerRun(1000, func() { _, _ = wrapped(ctx, 1) })
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = call(ctx, 1) }), plain+1)
}
