package testlocker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
)

// Hot has 8 instances of 16 callers take one key again and again, once with tenures and once with every turn through the backend. No two may
// be inside, and fences grow. It returns how many calls a second each of them serves.
func Hot(t *testing.T, lasts time.Duration, open func() (distributed.Backend, error)) (tenures, turns float64) {
	t.Helper()
	const instances, callers = 8, 16
	run := func(opts ...wllock.Option) float64 {
		var inside sync.Mutex
		var calls int // guarded by inside, as the next two
		var last uint64
		var wrong error
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		call := func(ctx context.Context) error {
			if !inside.TryLock() {
				return errors.New("two are inside")
			}
			defer inside.Unlock()
			held, _ := wllock.HeldFrom(ctx)
			if calls++; held.Fence() <= last && wrong == nil {
				wrong = fmt.Errorf("fence %d after %d", held.Fence(), last)
			}
			last = held.Fence()
			return nil
		}
		var all sync.WaitGroup
		for range instances {
			b, err := open()
			if err != nil {
				t.Fatal(err)
			}
			l, err := wllock.New("hot", b, append(opts, wllock.WithOwnedBackend())...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close(context.Background()) }() // what it holds expires
			for range callers {
				all.Go(func() {
					for ctx.Err() == nil {
						if err := l.Do(ctx, "key", "hot", call, wllock.WithWait(lasts)); err != nil && ctx.Err() == nil {
							t.Errorf("%v", err)
							return
						}
					}
				})
			}
		}
		all.Wait()
		if wrong != nil {
			t.Error(wrong)
		}
		return float64(calls) / lasts.Seconds()
	}
	tenures, turns = run(), run(wllock.WithMaxHandoffs(0))
	t.Logf("%d x %d callers of one key: %.0f calls a second in tenures, %.0f with each turn through the backend", instances, callers, tenures, turns)
	return tenures, turns
}
