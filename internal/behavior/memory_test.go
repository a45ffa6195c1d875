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
		bubble(t, name, func(t *testing.T) {
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
