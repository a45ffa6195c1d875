package wllock_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func benchLocker(t testing.TB, opts ...wllock.Option) *wllock.Locker {
	l, _ := testlocker.New(t, append(opts, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))...)
	return l
}

// wrapped is a guarded function with an argument and a result, batched is one with a batch guard.
func wrapped(l *wllock.Locker) func(context.Context, int) (int, error) {
	return wllock.Wrap(l, "product", func(int) string { return "1000" }, func(_ context.Context, a int) (int, error) { return 2 * a, nil })
}

func batched(l *wllock.Locker) func(context.Context, int) (int, error) {
	return wllock.WrapBatch(l, "product", func(int) string { return "1000" },
		func(_ context.Context, batch []*wllock.Item[int, int]) error {
			for _, i := range batch {
				i.Result = 2 * i.Arg
			}
			return nil
		})
}

// alone measures calls that come one after the other.
func alone(b *testing.B, call func(context.Context)) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		call(ctx)
	}
}

// crowd measures many callers; prepare returns what each of them does.
func crowd(b *testing.B, prepare func() (call func(context.Context))) {
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		call := prepare()
		for pb.Next() {
			call(context.Background())
		}
	})
}

// BenchmarkDo is one guarded call for a key without contention.
func BenchmarkDo(b *testing.B) {
	l := benchLocker(b)
	alone(b, func(ctx context.Context) { _ = l.Do(ctx, "product", "1000", testlocker.Nothing) })
}

func BenchmarkWrap(b *testing.B) {
	call := wrapped(benchLocker(b))
	alone(b, func(ctx context.Context) { _, _ = call(ctx, 1) })
}

// BenchmarkBatch is a call of a batch guard without contention: compare BenchmarkWrap.
func BenchmarkBatch(b *testing.B) {
	call := batched(benchLocker(b))
	alone(b, func(ctx context.Context) { _, _ = call(ctx, 1) })
}

// BenchmarkShed is a caller that is refused at the door.
func BenchmarkShed(b *testing.B) {
	l := benchLocker(b, wllock.WithThreshold(0))
	defer testlocker.Hold(b, l, "product", "1000", wllock.WithLockTimeMax(0))()
	alone(b, func(ctx context.Context) { _ = l.Do(ctx, "product", "1000", testlocker.Nothing) })
}

// BenchmarkDoHot is many callers for one key: a tenure.
func BenchmarkDoHot(b *testing.B) {
	l := benchLocker(b)
	crowd(b, func() func(context.Context) {
		return func(ctx context.Context) { _ = l.Do(ctx, "product", "1000", testlocker.Nothing) }
	})
}

func BenchmarkBatchHot(b *testing.B) {
	call := batched(benchLocker(b))
	crowd(b, func() func(context.Context) { return func(ctx context.Context) { _, _ = call(ctx, 1) } })
}

// BenchmarkDoOwnKey is many callers, each with a key of its own.
func BenchmarkDoOwnKey(b *testing.B) {
	l := benchLocker(b)
	var id atomic.Int64
	crowd(b, func() func(context.Context) {
		key := strconv.FormatInt(id.Add(1), 10)
		return func(ctx context.Context) { _ = l.Do(ctx, "product", key, testlocker.Nothing) }
	})
}

func TestGuardedCallsAllocateLittle(t *testing.T) {
	l, ctx := benchLocker(t), context.Background()
	if n := testing.AllocsPerRun(1000, func() { _ = l.Do(ctx, "product", "1000", testlocker.Nothing) }); n > 3 {
		t.Errorf("Do allocates %v times", n)
	}
	if race.Enabled {
		t.Skip("under the race detector a sync.Pool forgets at random")
	}
	one, many := wrapped(l), batched(l)
	plain := testing.AllocsPerRun(1000, func() { _, _ = one(ctx, 1) })
	least := plain + 2 // of several tries: on a busy machine a caller may come again before the worker is idle, and gets a new one
	for tries := 0; least > plain+1 && tries < 10; tries++ {
		least = min(least, testing.AllocsPerRun(1000, func() { _, _ = many(ctx, 1) }))
	}
	if least > plain+1 {
		t.Errorf("a batched call allocates %v times, a plain one %v", least, plain)
	}
}
