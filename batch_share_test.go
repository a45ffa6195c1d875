package wllock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// batchCrowd has callers in each of so many instances call again and again until stop is closed.
func batchCrowd(calls *sync.WaitGroup, stop <-chan struct{}, instances, callers int, call func(instance int)) {
	for instance := range instances {
		for range callers {
			calls.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						call(instance)
					}
				}
			})
		}
	}
}

// 4 instances with 64 callers each, whose batches of 16 take 1 ms: because riders count as hand-offs, the lease changes after
// MaxHandoffs callers, and nobody waits for longer than the tenures of the others take. All get the same share.
func TestB5BatchesShareTheLockFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, callers, max = 4, 64, 16
		backend := memlock.New()
		var guards []func(context.Context, int) (int, error)
		for range instances {
			guards = append(guards, newDesk(lockerOn(t, backend), doublingSlowly(time.Millisecond), wllock.WithMaxBatch(max)).call)
		}
		var mu sync.Mutex
		var waits []time.Duration
		served := make([]int, instances)
		var calls sync.WaitGroup
		stop := make(chan struct{})
		batchCrowd(&calls, stop, instances, callers, func(instance int) {
			begin := time.Now()
			_, err := guards[instance](context.Background(), 1)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			waits = append(waits, time.Since(begin))
			served[instance]++
		})
		time.Sleep(3 * time.Second)
		close(stop)
		calls.Wait()
		slices.Sort(waits)
		p99 := waits[len(waits)*99/100]
		bound := 2 * (instances - 1) * (wllock.DefaultMaxHandoffs/max + 1) * time.Millisecond
		t.Logf("%d calls in 3 s: %v, p50 %v, p99 %v (bound %v)", len(waits), served, waits[len(waits)/2], p99, bound)
		require.LessOrEqual(t, p99, bound)
		require.Greater(t, len(waits), 3000*max*9/10)
		require.Greater(t, jain(served), 0.98)
	})
}

// jain is 1 if all have the same, and 1/n if one has all (Jain, Chiu, Hawe 1984).
func jain(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Of callers that have 12 times as long as they need, 1 in 100 is refused at most; of those that have a tenth, 1 in 4 at least.
func TestB6ShedHopelessKnowsOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, max, run = 128, 16, 10 * time.Millisecond
		const needed = (callers/max + 1) * run
		l, _ := newLocker(t)
		group := newDesk(l, doublingSlowly(run), wllock.WithMaxBatch(max), wllock.WithShedHopeless())
		var calls sync.WaitGroup
		stop := make(chan struct{})
		batchCrowd(&calls, stop, 1, callers, func(int) { _, _ = group.call(context.Background(), 1) })
		var probes, refused [2]atomic.Int64
		for n := range 1000 {
			kind := n % 2
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), []time.Duration{12 * needed, needed / 10}[kind])
				defer cancel()
				_, err := group.call(ctx, 1)
				if n > 100 { // until then it learns
					probes[kind].Add(1)
					if errors.Is(err, wllock.ErrQueueFull) {
						refused[kind].Add(1)
					}
				}
			})
			time.Sleep(3 * time.Millisecond)
		}
		close(stop)
		calls.Wait()
		t.Logf("refused: %d of %d with time enough, %d of %d without", refused[0].Load(), probes[0].Load(), refused[1].Load(), probes[1].Load())
		require.LessOrEqual(t, 100*refused[0].Load(), probes[0].Load())
		require.GreaterOrEqual(t, 4*refused[1].Load(), probes[1].Load())
	})
}

// Callers of a cold key in several processes: one computes, and few look again.
func TestCacheFillComputesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, callers = 4, 64
		backend := memlock.New()
		var value, computed, gets atomic.Int64
		get := func() int64 { gets.Add(1); return value.Load() }
		fill := func(_ context.Context, b batch) error {
			v := get()
			if v == 0 {
				computed.Add(1)
				time.Sleep(20 * time.Millisecond)
				v = 42
				value.Store(v)
			}
			for _, i := range b {
				i.Result = int(v)
			}
			return nil
		}
		var calls sync.WaitGroup
		for range instances {
			d := newDesk(lockerOn(t, backend), fill)
			for range callers {
				calls.Go(func() {
					v := get()
					if v == 0 {
						r, err := d.call(context.Background(), 0)
						if err != nil {
							t.Error(err)
						}
						v = int64(r)
					}
					if v != 42 {
						t.Error(v)
					}
				})
			}
		}
		calls.Wait()
		require.EqualValues(t, 1, computed.Load())
		require.LessOrEqual(t, gets.Load(), int64(instances*callers+3*instances))
	})
}
