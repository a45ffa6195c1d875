package report

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func quiet() *mishaps { return &mishaps{log: func(any) {}} }

func newNotifier() *notifier {
	n := &notifier{mishaps: quiet()}
	n.loop = n.work
	return n
}

// elapsed is how long f takes.
func elapsed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// TestAttemptsThatStandStillDelayFewCallers: some wait for patience, the others not at all. What is left to do after a late
// attempt is done, once for each.
func TestAttemptsThatStandStillDelayFewCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		unblock := sync.OnceFunc(func() { close(until) })
		defer unblock()
		a := attempts{mishaps: quiet(), slots: make(chan struct{}, maxAttempts)}
		var late atomic.Int32
		try := func(f func()) (ran bool) { return a.try(patience, f, func() { late.Add(1) }) }
		for range maxStalled {
			require.Equal(t, patience, elapsed(func() { require.False(t, try(func() { <-until })) }))
		}
		for range 10 {
			require.Zero(t, elapsed(func() { require.False(t, try(func() { t.Error("ran") })) }))
		}
		require.EqualValues(t, maxStalled+10, a.dropped.Load())
		unblock()
		synctest.Wait()
		require.EqualValues(t, maxStalled, late.Load())
		require.True(t, try(func() {}))
		require.EqualValues(t, maxStalled, late.Load(), "not for one that was in time")
	})
}

// TestAttemptsAtTheSameTimeAreBounded: those beyond wait for a slot, and not for longer than the others do.
func TestAttemptsAtTheSameTimeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		defer close(until)
		a := attempts{mishaps: quiet(), slots: make(chan struct{}, maxAttempts)}
		var running atomic.Int32
		took := make(chan time.Duration, maxAttempts+20)
		for range cap(took) {
			go func() {
				took <- elapsed(func() { a.try(patience, func() { running.Add(1); <-until }, func() {}) })
			}()
		}
		time.Sleep(10 * patience)
		require.Len(t, took, cap(took))
		for range cap(took) {
			require.Equal(t, patience, <-took)
		}
		require.EqualValues(t, maxAttempts, running.Load())
	})
}

// A notifier that keeps up drops nothing, however many reports there are, also if some panic or end its goroutine.
func TestReportsThatWereRunMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier()
		ran, ended := 0, 0
		for i := range 3 * maxReports {
			n.put(report{run: func(*report) {
				switch ran++; {
				case ran%10 == 0:
					panic("foreign")
				case ran%1000 == 1:
					ended++
					runtime.Goexit()
				}
			}})
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		require.Zero(t, n.dropped.Load())
		require.Equal(t, 3*maxReports, ran)
		require.EqualValues(t, ran/10+ended, n.panics.Load())
		require.Zero(t, n.left.Load())
	})
}

// TestCallersYieldToANotifierThatIsBehind: for patience at most, and not while it stands still.
func TestCallersYieldToANotifierThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier()
		yield := func() { n.yield(new(Wait)) }
		fill := func(run func(*report)) {
			for range maxReports / 2 {
				n.put(report{run: run})
			}
		}
		busy := time.Now().Add(patience / 2)
		fill(func(*report) { time.Sleep(time.Until(busy)) })
		require.Equal(t, patience/2, elapsed(yield), "until it has caught up")
		for range 2 { // once more when it has run again
			until := make(chan struct{})
			unblock := sync.OnceFunc(func() { close(until) })
			defer unblock()
			fill(func(*report) { <-until })
			require.Equal(t, patience, elapsed(yield))
			require.Zero(t, elapsed(yield), "it stands still")
			unblock()
			synctest.Wait()
			require.Zero(t, n.left.Load())
		}
	})
}

// TestACallWaitsForForeignCodeOnceInAll: what has been waited for one hook is not waited for the next.
func TestACallWaitsForForeignCodeOnceInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		defer close(until)
		spans, metrics := newNotifier(), newNotifier()
		for range maxReports / 2 {
			spans.put(report{run: func(*report) { <-until }})
			metrics.put(report{run: func(*report) { <-until }})
		}
		var w Wait
		begin := time.Now()
		time.Sleep(patience / 4) // as the start of a span
		w.since(begin)
		require.Equal(t, patience*3/4, elapsed(func() { spans.yield(&w) }))
		require.Zero(t, elapsed(func() { metrics.yield(&w) }))
	})
}
