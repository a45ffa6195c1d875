package behavior

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

const (
	usePermits   = 8
	useInstances = 4
	useWork      = 5 * time.Millisecond // plus or minus a half
)

// way lets callers of an instance do their work, at most so many at a time.
type way func(instance int, work wllock.Func) error

// byPermits is the way of this library, byKeys that without it: a lock for each permit, of which a caller takes one at random.
func byPermits(t testing.TB) way {
	all := useLockers(t)
	return func(i int, work wllock.Func) error {
		return all[i].Do(context.Background(), "n", "k", work, wllock.Permits(usePermits))
	}
}

func byKeys(t testing.TB) way {
	all := useLockers(t)
	return func(i int, work wllock.Func) error {
		return all[i].Do(context.Background(), "n", fmt.Sprint(rand.IntN(usePermits)), work)
	}
}

// bySemaphore is the limit: one process, and no leases.
func bySemaphore(testing.TB) way {
	s := semaphore.NewWeighted(usePermits)
	return func(_ int, work wllock.Func) error {
		if err := s.Acquire(context.Background(), 1); err != nil {
			return err
		}
		defer s.Release(1)
		return work(context.Background())
	}
}

func useLockers(t testing.TB) (all []*wllock.Locker) {
	b := memlock.New()
	for range useInstances {
		all = append(all, lockerOn(t, b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL)))
	}
	return all
}

// use is how a number of calls went.
type use struct {
	share    float64 // of the time in which permits could be in use, until callers run out
	most     int32   // inside at a time
	p50, p99 time.Duration
}

// measure has callers of each instance work, one call after the other, until so many calls have begun.
func (enter way) measure(t testing.TB, callers, calls int) (u use) {
	var begun, inside, most atomic.Int32
	var all sync.WaitGroup
	var mu sync.Mutex
	var waits, stays []time.Duration
	var last time.Time // when the last call began its work
	start := time.Now()
	for i := range useInstances * callers {
		all.Go(func() {
			for begun.Add(1) <= int32(calls) {
				asked := time.Now()
				err := enter(i%useInstances, func(context.Context) error {
					now := inside.Add(1)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					began := time.Now()
					time.Sleep(useWork/2 + rand.N(useWork))
					stayed := time.Since(began)
					inside.Add(-1)
					mu.Lock()
					defer mu.Unlock()
					waits, stays = append(waits, began.Sub(asked)), append(stays, stayed)
					if began.After(last) {
						last = began
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var busy time.Duration
	for _, s := range stays {
		busy += s
	}
	busy -= usePermits / 2 * useWork // about what is left of the others when the last begins
	slices.Sort(waits)
	return use{float64(busy) / float64(usePermits*last.Sub(start)), most.Load(), waits[len(waits)/2], waits[len(waits)*99/100]}
}

// In time that passes only where callers wait, what is lost is what the rules cost: a permit that is free while somebody waits.
func TestPermitsAreInUse(t *testing.T) {
	for callers, want := range map[int]float64{64: .97, 3: .97, 2: .90} {
		synctest.Test(t, func(t *testing.T) {
			u := byPermits(t).measure(t, callers, 4000)
			t.Logf("%d x %d: %.1f%% in use, waits of p50 %v, p99 %v", useInstances, callers, 100*u.share, u.p50, u.p99)
			require.EqualValues(t, usePermits, u.most)
			require.GreaterOrEqual(t, u.share, want)
		})
	}
}
