package contender

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// others are the libraries that lock with the common convention, SET key unique NX PX, under the key they are given.
func others() []Contender {
	var found []Contender
	for _, c := range All() {
		if c.Group == OverRedis && (c.Name == "redsync" || c.Name == "redislock" || c.Name == "wllock-java") {
			found = append(found, c)
		}
	}
	return found
}

// A service can be moved from another library to wllock one instance at a time: on one key they exclude each other, and
// with a gap between tenures each gets in. The callers pause between their turns: a library that locks again at once
// leaves the key free for a fraction of a millisecond, which all others that poll can miss for seconds.
func TestOnOneKeyWithOtherLibraries(t *testing.T) {
	const pause = 10 * time.Millisecond // of each of four callers, who hold the lock for 1 ms: it is free half of the time
	for _, other := range others() {
		t.Run(other.Name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			theirs, err := other.Open(Options{Addr: s.Addr, Workers: 4})
			require.NoError(t, err)
			t.Cleanup(func() { _ = theirs.Close() })
			backend, err := redislock.Open("redis://"+s.Addr, redislock.WithInteropGap(20*time.Millisecond))
			require.NoError(t, err)
			locker, err := wllock.New("bench", backend, wllock.WithMaxTenure(20*time.Millisecond), wllock.WithOwnedBackend())
			require.NoError(t, err)
			ours := locks(locker)
			t.Cleanup(func() { _ = ours.Close() })
			sides := map[string]func(context.Context, func(context.Context) error) error{
				"ours": func(ctx context.Context, f func(context.Context) error) error {
					defer time.Sleep(pause)
					return ours.Do(ctx, "hot", f)
				},
				"theirs": func(ctx context.Context, f func(context.Context) error) error {
					defer time.Sleep(pause)
					return theirs.Do(ctx, "bench:key:hot", f)
				},
			}
			share := map[string]int64{}
			for start := time.Now(); ; { // again, if pauses of the machine's made one of them miss the moments at which the key was free
				for name, turns := range contend(t, "bench:key:hot", 2*time.Second, sides) {
					share[name] += turns
				}
				t.Logf("turns: %v", share)
				if share["ours"] > 20 && share["theirs"] > 20 || time.Since(start) > time.Minute {
					break
				}
			}
			require.Greater(t, share["ours"], int64(20))
			require.Greater(t, share["theirs"], int64(20))
		})
	}
}

// On five servers clients of both kinds exclude each other, and each gets its turns when the others leave gaps.
func TestOnFiveServersWithRedsync(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	var addrs []string
	for range 5 {
		addrs = append(addrs, redistest.Start(t).Addr)
	}
	const gap = 50 * time.Millisecond // for 12 callers who each hold the lock for 1 ms: it must be free at times
	sides := map[string]func(context.Context, func(context.Context) error) error{}
	for _, c := range All() {
		if c.Group != OverRedlock {
			continue
		}
		if c.Role == Limit || c.Role == Rival && c.Name != "redsync-5ms" {
			continue
		}
		one, err := c.Open(Options{Addr: strings.Join(addrs, ","), Workers: 4})
		require.NoError(t, err)
		t.Cleanup(func() { _ = one.Close() })
		key := "hot"
		if c.Role == Rival {
			key = "bench:key:hot"
		}
		sides[c.Name] = func(ctx context.Context, f func(context.Context) error) error {
			defer time.Sleep(gap)
			return one.Do(ctx, key, f)
		}
	}
	share := map[string]int64{}
	for start := time.Now(); ; { // again, if a release of redsync's had no answer in time: its key then keeps all out until it expires
		missing := false
		for name, turns := range contend(t, "bench:key:hot", 5*time.Second, sides) {
			share[name] += turns
			missing = missing || share[name] == 0
		}
		t.Logf("turns: %v", share)
		if !missing || time.Since(start) > time.Minute {
			break
		}
	}
	require.Len(t, share, 3)
	for name, turns := range share {
		require.Positive(t, turns, name)
	}
}

// contend lets four callers of each side acquire the lock repeatedly, and counts the holds.
func contend(t *testing.T, key string, run time.Duration, sides map[string]func(context.Context, func(context.Context) error) error) map[string]int64 {
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	var inside atomic.Int32
	counts := map[string]*atomic.Int64{}
	var wg sync.WaitGroup
	for name, do := range sides {
		count := new(atomic.Int64)
		counts[name] = count
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := do(ctx, func(context.Context) error {
						if inside.Add(1) != 1 {
							t.Errorf("two inside %s", key)
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						count.Add(1)
						return nil
					})
					if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
	wg.Wait()
	share := map[string]int64{}
	for name, c := range counts {
		share[name] = c.Load()
	}
	return share
}
