package wllock_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// BenchmarkDo is one guarded call for a key without contention.
func BenchmarkDo(b *testing.B) {
	l, _ := newLocker(b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Do(ctx, "product", "1000", nothing)
	}
}

// BenchmarkDoHot is many callers for one key: a tenure.
func BenchmarkDoHot(b *testing.B) {
	l, _ := newLocker(b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = l.Do(context.Background(), "product", "1000", nothing)
		}
	})
}

// BenchmarkDoOwnKey is many callers, each with a key of its own.
func BenchmarkDoOwnKey(b *testing.B) {
	l, _ := newLocker(b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	var id atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		key := strconv.FormatInt(id.Add(1), 10)
		for pb.Next() {
			_ = l.Do(context.Background(), "product", key, nothing)
		}
	})
}

// BenchmarkShed is a caller that is refused at the door.
func BenchmarkShed(b *testing.B) {
	l, _ := newLocker(b, wllock.WithThreshold(0))
	defer hold(b, l, "product", "1000", wllock.WithLockTimeMax(0))()
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Do(context.Background(), "product", "1000", nothing)
	}
}

func TestGuardedCallAllocatesLittle(t *testing.T) {
	l, _ := newLocker(t)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_ = l.Do(context.Background(), "product", "1000", nothing)
	}), 3.0)
}
