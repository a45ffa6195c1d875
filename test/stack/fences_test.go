package stack_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// Two instances under full load: how long an instance waits for its next tenure, from the end of its last hold.
func TestWaitForTheNextTenureIsBounded(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	const maxTenure, slack = 10 * time.Millisecond, 10 * time.Millisecond // slack is for a machine with more to do
	s := redistest.Start(t)
	b := redisOn(t, s.Addr)
	var (
		last  [2]time.Time // guarded by the lock, as are the others
		who   = -1
		waits []time.Duration
		hold  time.Duration
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // many times what they take
	defer cancel()
	enough := testscope.Scale(200, 3000)
	var wg sync.WaitGroup
	for i := range last {
		l := lockerOn(t, b, wllock.WithLeaseTTL(5*time.Second), wllock.WithMaxTenure(maxTenure), wllock.WithMaxHandoffs(1<<30))
		for range 16 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = l.Do(ctx, "n", "k", func(context.Context) error {
						in := time.Now()
						if who != i && !last[i].IsZero() {
							waits = append(waits, in.Sub(last[i]))
						}
						for time.Since(in) < 100*time.Microsecond { // work, so that the bound is on tenures and not on sleeps
						}
						who, last[i] = i, time.Now()
						hold = max(hold, last[i].Sub(in))
						if len(waits) >= enough {
							cancel()
						}
						return nil
					})
				}
			})
		}
	}
	pings := pingUntil(ctx, t, s)
	wg.Wait()
	slices.Sort(waits)
	trip, stall := quantile(pings, .5), quantile(pings, .99)
	bound := maxTenure + 2*trip + 100*time.Microsecond
	t.Logf("%d tenures; waits: 50%% %v, 99%% %v, 99.9%% %v, longest %v; bound %v; round trip %v, 99%% %v, longest hold %v", len(waits),
		quantile(waits, .5), quantile(waits, .99), quantile(waits, .999), quantile(waits, 1), bound, trip, stall, hold)
	require.GreaterOrEqual(t, len(waits), enough)
	require.Less(t, quantile(waits, .9), bound+slack+4*stall)
}

// pingUntil measures round trips until ctx ends. They show what the machine itself adds to a step, under the load of the test.
func pingUntil(ctx context.Context, t *testing.T, s *redistest.Server) (pings []time.Duration) {
	for c := s.Client(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		asked := time.Now()
		require.NoError(t, c.Ping(t.Context()).Err())
		pings = append(pings, time.Since(asked))
	}
	slices.Sort(pings)
	return pings
}
