package behavior

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/wllocktest"
)

// memory is what a process keeps: goroutines, and objects.
func memory() (goroutines int, objects uint64) {
	synctest.Wait()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapObjects
}

// The backend is silent while calls of all kinds come: neither goroutines nor objects grow with the time, and nothing is left when it
// answers again.
func TestALongSilenceCostsNoMemory(t *testing.T) {
	silence := testscope.Scale(5*time.Minute, time.Hour)
	for name, policy := range map[string]wllock.Outage{"closed": wllock.FailClosed, "local": wllock.LocalOnly} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := []wllock.Option{wllock.WithLeaseTTL(5 * time.Second), wllock.WithLinger(time.Second), wllock.WithOutage(policy)}
				l, faults := wllocktest.NewWithFaults(t, opts...)
				other := faults.Process(opts...)
				stop := underLoad(t.Context(), l, other)
				defer stop()
				stays := func(goroutines int, objects uint64) {
					t.Helper()
					g, o := memory()
					require.LessOrEqual(t, g, goroutines+64, "the runtime counts up to 33 too many while it puts ended ones aside")
					require.LessOrEqual(t, o, objects+5000, "one for each third call")
				}
				time.Sleep(30 * time.Second)
				calm, least := memory()
				faults.Hang()
				time.Sleep(time.Minute)
				goroutines, objects := memory()
				for range 4 {
					time.Sleep(silence / 4)
					stays(goroutines, objects)
				}
				faults.Heal()
				time.Sleep(30 * time.Second)
				stays(calm, least)
				stop()
				time.Sleep(time.Minute)
				require.Empty(t, l.Locks(1))
				require.Zero(t, l.Stats().Total.Held+l.Stats().Total.Waiting)
			})
		})
	}
}

// underLoad makes calls of ten kinds until stop is called.
func underLoad(ctx context.Context, l, other *wllock.Locker) (stop func()) {
	var stopped atomic.Bool
	var all sync.WaitGroup
	batch := wllock.WrapBatch(l, "n", func(int) string { return "b" }, func(context.Context, []*wllock.Item[int, int]) error { return nil },
		wllock.WithWait(2*time.Second))
	for _, call := range []func(i int){
		func(int) { _ = l.Do(ctx, "n", "a", nothing, wllock.WithWait(10*time.Second)) },
		func(int) { _ = other.Do(ctx, "n", "a", nothing, wllock.WithWait(2*time.Second)) },
		func(i int) { _ = l.Do(ctx, "n", strconv.Itoa(i), nothing, wllock.WithWait(time.Second)) },
		func(int) { _ = l.Do(ctx, "n", "p", nothing, wllock.Permits(2), wllock.NoWait()) },
		func(int) { _ = l.Do(ctx, "n", "p", nothing, wllock.Permits(2), wllock.WithWait(8*time.Second)) },
		func(int) { _ = l.Do(ctx, "n", "s", nothing, wllock.Shared(), wllock.WithWait(3*time.Second)) },
		func(int) {
			_ = l.Do(ctx, "n", "h", nothing, wllock.WithHoldAtLeast(time.Second), wllock.WithWait(3*time.Second))
		},
		func(int) {
			_ = l.DoAll(ctx, []wllock.Resource{{Name: "n", Key: "c"}, {Name: "n", Key: "d"}}, nothing, wllock.WithWait(2*time.Second))
		},
		func(i int) { _, _ = batch(ctx, i) },
		func(int) {
			term, cancel := context.WithTimeout(ctx, 7*time.Second)
			defer cancel()
			_ = l.Lead(term, "n", "l", func(ctx context.Context) error { <-ctx.Done(); return nil })
		},
	} {
		all.Go(func() {
			for i := 0; !stopped.Load(); i++ {
				call(i)
				time.Sleep(97 * time.Millisecond)
			}
		})
	}
	return func() {
		stopped.Store(true)
		all.Wait()
	}
}

// inUse is the memory of live objects and of stacks.
func inUse() (heap, stacks int64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}

// A caller that waits costs memory alone, and all that wait are one batch. Measured on two busy cores: 0.3 to 0.6 s from the release to the
// last answer, 0.7 KB of heap and 2 KB of stack for each.
func TestAHundredThousandWaitersAreServedAsOneBatch(t *testing.T) {
	testscope.Long(t, "measures time and memory")
	if race.Enabled {
		t.Skip("measures time and memory, without the race detector")
	}
	const waiters = 100_000
	const perCaller, most = 2 << 10, 20 * time.Second // bytes of heap; a machine may be busy
	l, err := wllock.New("test", memlock.New(), wllock.WithThreshold(wllock.Unlimited), wllock.WithOwnedBackend())
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) }()
	release := hold(t, l, "n", "k")
	var sizes []int
	call := wllock.WrapBatch(l, "n", func(int) string { return "k" }, func(_ context.Context, b batch) error {
		sizes = append(sizes, len(b))
		return doubling(context.Background(), b)
	}, wllock.WithMaxBatch(wllock.Unlimited))

	var all sync.WaitGroup
	var right atomic.Int64
	var started sync.WaitGroup
	come := make(chan struct{})
	started.Add(waiters)
	for i := range waiters {
		all.Go(func() {
			started.Done()
			<-come
			if r, err := call(context.Background(), i); err == nil && r == 2*i {
				right.Add(1)
			}
		})
	}
	started.Wait()
	before, stacksBefore := inUse() // with goroutines, which the runtime keeps for later
	close(come)
	require.Eventually(t, func() bool { return l.Stats().Names["n"].Waiting == waiters }, time.Minute, 10*time.Millisecond)
	heap, stacks := inUse()
	t.Logf("%d B of heap and %d B of stack for each caller", (heap-before)/waiters, (stacks-stacksBefore)/waiters)
	require.Less(t, (heap-before)/waiters, int64(perCaller))

	begin := time.Now()
	release()
	all.Wait()
	t.Logf("served in %v", time.Since(begin))
	require.Less(t, time.Since(begin), most)
	require.EqualValues(t, waiters, right.Load())
	require.Equal(t, []int{waiters}, sizes)
	after, _ := inUse()
	require.Less(t, (after-before)/waiters, int64(200), "nothing stays behind")
}
