package stack_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// Hand-offs, releases, reads, waits that are cut short at any moment, by instances with different settings: nobody is
// beside a writer, and each caller's fence is above all earlier ones.
func TestFencesGrowThroughAMixture(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	for name, on := range map[string]struct {
		open     func(t *testing.T) distributed.Backend
		few, all int
	}{
		"memory":    {func(*testing.T) distributed.Backend { return memlock.New() }, 50_000, 1_000_000},
		"redis":     {func(t *testing.T) distributed.Backend { return redisOn(t, redistest.Start(t).Addr) }, 10_000, 100_000},
		"redlock":   {func(t *testing.T) distributed.Backend { return openRedlock(t, servers(t, 5)) }, 3_000, 50_000},
		"zookeeper": {func(t *testing.T) distributed.Backend { return zooKeeperOn(t, zktest.Start(t).Addr) }, 3_000, 50_000},
	} {
		t.Run(name, func(t *testing.T) { mixFences(t, on.open(t), testscope.Scale(on.few, on.all)) })
	}
}

// guarded is what the lock guards: only a writer changes it, so the race detector sees a caller beside a writer.
type guarded struct {
	fence                   uint64
	readers                 atomic.Int32
	writes, handoffs, reads atomic.Int64
	cut, overlaps, ungrown  atomic.Int64
	unknown                 atomic.Int64 // errors that nobody should see
}

func mixFences(t *testing.T, b distributed.Backend, n int) {
	lockers := mixed(func(opts ...wllock.Option) *wllock.Locker { return lockerOn(t, b, opts...) }, 10*time.Second)
	var g guarded
	crowd(t, 24, func(i int, r *rand.Rand) {
		for g.writes.Load() < int64(n) {
			g.call(t.Context(), lockers[i%len(lockers)], r)
		}
	})
	t.Logf("%d writes, %d of them hand-offs; %d reads; %d waits cut short", g.writes.Load(), g.handoffs.Load(), g.reads.Load(), g.cut.Load())
	require.Zero(t, g.overlaps.Load())
	require.Zero(t, g.ungrown.Load())
	require.Zero(t, g.unknown.Load())
	require.Positive(t, g.handoffs.Load())
	require.Positive(t, g.reads.Load())
	require.Positive(t, g.cut.Load())
}

// call is one caller, by chance a reader, impatient, or canceled.
func (g *guarded) call(ctx context.Context, l *wllock.Locker, r *rand.Rand) {
	var opts []wllock.CallOption
	do := g.write
	if r.IntN(10) == 0 {
		opts, do = append(opts, wllock.Shared()), g.read
	}
	switch r.IntN(20) {
	case 0:
		opts = append(opts, wllock.NoWait())
	case 1:
		opts = append(opts, wllock.WithWait(time.Duration(1+r.IntN(200))*time.Microsecond))
	case 2:
		opts = append(opts, wllock.SyncRelease())
	case 3, 4:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(time.Duration(r.IntN(200))*time.Microsecond, cancel).Stop()
		defer cancel()
	}
	ran := false
	err := l.Do(ctx, "n", "k", func(ctx context.Context) error {
		ran = true
		h, _ := wllock.HeldFrom(ctx)
		do(h)
		return nil
	}, opts...)
	switch {
	case err == nil:
	case ran:
		g.unknown.Add(1)
	default:
		g.cut.Add(1)
	}
}

func (g *guarded) write(h *wllock.Held) {
	if g.readers.Load() != 0 {
		g.overlaps.Add(1)
	}
	if h.Fence() <= g.fence {
		g.ungrown.Add(1)
	}
	g.fence = h.Fence()
	g.writes.Add(1)
	if h.Handoff() {
		g.handoffs.Add(1)
	}
}

func (g *guarded) read(h *wllock.Held) {
	g.readers.Add(1)
	defer g.readers.Add(-1)
	if h.Fence() <= g.fence {
		g.ungrown.Add(1)
	}
	g.reads.Add(1)
}

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
