package contender

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
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
			sides := map[string]turn{
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
				contend(t, sides, share)
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

// turn takes one under the lock.
type turn = func(context.Context, func(context.Context) error) error

// contend lets four callers of each side acquire the lock repeatedly for 2 s, and adds the holds to those of its side.
func contend(t *testing.T, sides map[string]turn, holds map[string]int64) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var inside atomic.Int32
	var mu sync.Mutex // guards holds
	var wg sync.WaitGroup
	for name, do := range sides {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := do(ctx, func(context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two are inside")
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						mu.Lock()
						defer mu.Unlock()
						holds[name]++
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
}
