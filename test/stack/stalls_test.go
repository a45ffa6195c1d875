package stack_test

import (
	"context"
	"slices"
	"testing"
	"time"
)

// stalls measures how late the machine runs a goroutine whose time has come, until stop is called; the result is sorted. Bounds on
// what is real time are to allow for it: a busy machine is no fault of the locks.
func stalls(t *testing.T) (stop func() []time.Duration) {
	const pause = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var late []time.Duration
	done, asleep := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		for ; ctx.Err() == nil || late == nil; asleep = time.Now() {
			time.Sleep(pause)
			late = append(late, time.Since(asleep)-pause)
		}
	}()
	stop = func() []time.Duration {
		cancel()
		<-done
		slices.Sort(late)
		return late
	}
	t.Cleanup(func() { stop() })
	return stop
}
