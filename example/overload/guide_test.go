package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/wllocktest"
)

// These tests check the formulas of docs/tuning.md in a bubble, where only holds and waits take time.

const hold = 3 * time.Millisecond

// bubble runs a test with n servers of one shop.
func bubble(t *testing.T, n int, test func(t *testing.T, servers []*wllock.Locker, faults *wllocktest.Faults), opts ...wllock.Option) {
	synctest.Test(t, func(t *testing.T) {
		one, faults := wllocktest.NewWithFaults(t, append([]wllock.Option{wllock.WithLeaseTTL(wllock.DefaultLeaseTTL)}, opts...)...)
		servers := []*wllock.Locker{one}
		for range n - 1 {
			servers = append(servers, faults.Process(append([]wllock.Option{wllock.WithLeaseTTL(wllock.DefaultLeaseTTL)}, opts...)...))
		}
		test(t, servers, faults)
	})
}

// crowd overloads every server for some time, and returns the waits of accepted callers, in total and at the backend.
func crowd(servers []*wllock.Locker, length time.Duration) (took, away times) {
	var (
		mu      sync.Mutex
		callers sync.WaitGroup
	)
	order := func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		mu.Lock()
		away = append(away, held.DistributedWait())
		mu.Unlock()
		time.Sleep(hold)
		return nil
	}
	for range int(3 * length / hold) {
		for _, l := range servers {
			callers.Go(func() {
				began := time.Now()
				if l.Do(context.Background(), "product", "1000", order) != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
			})
		}
		time.Sleep(hold / 3)
	}
	callers.Wait()
	return took, away
}

func TestGuideThreshold(t *testing.T) {
	const patience = 2 * time.Second
	for _, n := range []int{1, 2, 4, 8} {
		threshold := int(.7 * patience.Seconds() / (hold.Seconds() * float64(n)))
		tenure := min(100*time.Millisecond, patience/5/time.Duration(max(n-1, 1)))
		bubble(t, n, func(t *testing.T, servers []*wllock.Locker, _ *wllocktest.Faults) {
			took, _ := crowd(servers, patience*3/2)
			answer := time.Duration(n*(threshold+1)) * hold
			assert.Greater(t, took.quantile(.99), answer*9/10, "%d servers", n)
			assert.LessOrEqual(t, took.quantile(1), answer+time.Duration(n-1)*(tenure+hold), "%d servers", n)
			assert.Less(t, took.quantile(1), patience*19/20, "%d servers", n)
		}, wllock.WithThreshold(threshold), wllock.WithMaxTenure(tenure))
	}
}

// A queue of fifty keeps the lock in use with any number of buyers, from the capacity upwards.
func TestGuideQueueOfFifty(t *testing.T) {
	for _, times := range []int{1, 10} {
		l := small
		l.times, l.measured = times, 12*time.Second/time.Duration(times)
		line, none := ofLoad(t, l, trial{threshold: 50}), ofLoad(t, l, trial{})
		assert.Greater(t, line.busy(l), .94, "%d times the capacity", times)
		assert.InDelta(t, float64(times)/float64(1+times), none.busy(l), .05, "%d times the capacity", times)
	}
}

func TestGuideTenure(t *testing.T) {
	for _, tenure := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		bubble(t, 4, func(t *testing.T, servers []*wllock.Locker, _ *wllocktest.Faults) {
			_, away := crowd(servers, 3*time.Second)
			assert.LessOrEqual(t, away.quantile(1), 3*(tenure+hold))
			assert.Greater(t, away.quantile(1), 3*(tenure-hold))
		}, wllock.WithMaxTenure(tenure))
		bubble(t, 4, func(t *testing.T, servers []*wllock.Locker, _ *wllocktest.Faults) {
			_, away := crowd(servers, 3*time.Second)
			assert.Equal(t, 3*5*hold, away.quantile(1), "one and four hand-offs each")
		}, wllock.WithMaxTenure(tenure), wllock.WithMaxHandoffs(4))
	}
}

// next returns how long another server then waits for the lock.
func next(t *testing.T, l *wllock.Locker) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, l.Do(context.Background(), "product", "1000", func(context.Context) error { return nil }))
	return time.Since(began)
}

// A function that hangs and ignores its context.
func TestGuideLockTimeMax(t *testing.T) {
	const most = 300 * time.Millisecond
	bubble(t, 2, func(t *testing.T, servers []*wllock.Locker, _ *wllocktest.Faults) {
		free := make(chan struct{})
		hung := make(chan struct{})
		go func() {
			defer close(hung)
			_ = servers[0].Do(context.Background(), "product", "1000", func(context.Context) error { <-free; return nil })
		}()
		synctest.Wait()
		waited := next(t, servers[1])
		close(free)
		<-hung
		assert.Greater(t, waited, most)
		assert.LessOrEqual(t, waited, most+wllock.DefaultLeaseTTL)
	}, wllock.WithDefaults(wllock.WithLockTimeMax(most)))
}

// A pause of a quarter of the TTL loses nothing, whenever it occurs. A partition stands for the pause.
func TestGuideLeaseTTLAndPauses(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second} {
		for at := range 40 {
			bubble(t, 1, func(t *testing.T, servers []*wllock.Locker, faults *wllocktest.Faults) {
				require.NoError(t, servers[0].Do(context.Background(), "product", "1000", func(context.Context) error {
					time.Sleep(time.Duration(at) * ttl / 20)
					faults.Partition()
					time.Sleep(ttl / 4)
					faults.Heal()
					time.Sleep(ttl)
					return nil
				}, wllock.WithLockTimeMax(0)), "paused at %d/20 of the TTL", at)
			}, wllock.WithLeaseTTL(ttl))
		}
	}
}

// The lease of a crashed process is no longer renewed.
func TestGuideLeaseTTLAndCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Second
		backend := memlock.New()
		l, err := wllock.New("test", backend, wllock.WithLeaseTTL(ttl))
		require.NoError(t, err)
		lease, _, err := backend.Enter(t.Context(), distributed.Request{Key: "test:product:1000", Instance: "crashed", TTL: ttl})
		require.NoError(t, err)
		lease.Abandon()
		assert.LessOrEqual(t, next(t, l), ttl)
		require.NoError(t, errors.Join(l.Close(t.Context()), backend.Close()))
	})
}

func TestGuideLinger(t *testing.T) {
	const gap = 2 * time.Millisecond
	for linger, handoff := range map[time.Duration]bool{0: false, gap / 2: false, gap * 3 / 2: true} {
		bubble(t, 1, func(t *testing.T, servers []*wllock.Locker, _ *wllocktest.Faults) {
			for i := range 5 {
				require.NoError(t, servers[0].Do(context.Background(), "product", "1000", func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					assert.Equal(t, handoff && i > 0, held.Handoff(), "linger %v, call %d", linger, i)
					return nil
				}))
				time.Sleep(gap)
			}
		}, wllock.WithLinger(linger))
	}
}

// WithWait bounds the wait alone: the client waits for that and the function.
func TestGuideWait(t *testing.T) {
	const patience, slowest = 2 * time.Second, 300 * time.Millisecond
	bubble(t, 1, func(t *testing.T, servers []*wllock.Locker, _ *wllocktest.Faults) {
		release := wllocktest.Hold(t, servers[0], "product", "1000")
		began := time.Now()
		time.AfterFunc(patience-slowest-time.Millisecond, release)
		require.NoError(t, servers[0].Do(context.Background(), "product", "1000", func(context.Context) error {
			time.Sleep(slowest)
			return nil
		}, wllock.WithWait(patience-slowest)))
		assert.Less(t, time.Since(began), patience)
	})
}
