package wllock_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
)

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
