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
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

const hotLockers, hotCallers = 8, 16

// HotKey has eight processes of sixteen callers use one key. They exclude each other, fences grow, and all processes get the same
// share. In tenures they get far more of it. open opens the backend of one process. It returns the turns without tenures.
func HotKey(t *testing.T, open func() distributed.Backend) (turns int64) {
	t.Helper()
	return hotKeys(t, open, true)
}

// HotKeyUnfenced is the same over a service without fences.
func HotKeyUnfenced(t *testing.T, open func() distributed.Backend) {
	t.Helper()
	hotKeys(t, open, false)
}

func hotKeys(t *testing.T, open func() distributed.Backend, fenced bool) (turns int64) {
	t.Helper()
	tenures := hotKey(t, open, fenced)
	turns = hotKey(t, open, fenced, wllock.WithMaxHandoffs(0))
	t.Logf("%d turns in tenures, %d over the service", tenures, turns)
	if !race.Enabled && tenures < 20*turns { // the detector slows the turns within a process, and not the service
		t.Errorf("%d turns in tenures, %d without; want 20 times as many", tenures, turns)
	}
	return turns
}

func hotKey(t *testing.T, open func() distributed.Backend, fenced bool, opts ...wllock.Option) (total int64) {
	t.Helper()
	var last uint64 // guarded by the lock under test, as inside is
	var inside int
	met := map[int]bool{}              // too: who has had a turn
	turns := make([]int64, hotLockers) // too, each: since all have had one, for a holder that polls learns late that it is not alone
	var lockers []*wllock.Locker
	for range hotLockers { // with their sessions open all begin at one time
		l := On(t, open(), append(opts, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(10*time.Second))...)
		untilNil(t, func() error { return l.Do(t.Context(), "warm", "1", Nothing) })
		lockers = append(lockers, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testscope.Scale(3*time.Second, 20*time.Second))
	defer cancel()
	var all sync.WaitGroup
	for i, l := range lockers {
		for range hotCallers {
			all.Go(func() {
				for ctx.Err() == nil {
					err := l.Do(ctx, "product", "1", func(ctx context.Context) error {
						held, _ := wllock.HeldFrom(ctx)
						inside++
						if inside != 1 || (held.Fence() > last) != fenced {
							t.Errorf("%d inside, fence %d after %d", inside, held.Fence(), last)
						}
						last = held.Fence()
						if met[i] = true; len(met) == hotLockers {
							turns[i]++
						}
						inside--
						return nil
					})
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("turns %v, Jain %.3f", turns, jain(turns))
	if len(met) < hotLockers || jain(turns) < 0.9 {
		t.Errorf("turns %v, Jain %.3f", turns, jain(turns))
	}
	for _, n := range turns {
		total += n
	}
	return total
}

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe, 1984: 1 if all have the same, 1/n if one has everything.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Crowd has a hundred callers lock keys of their own, while one lock is held for all that time. No caller is told that the server is
// away.
func Crowd(t *testing.T, b distributed.Backend) {
	t.Helper()
	l := On(t, b, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(5*time.Second))
	held, err := l.Acquire(t.Context(), "held", "1", wllock.WithLockTimeMax(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for began, first := time.Now(), true; !t.Failed() && (first || time.Since(began) < 2*time.Second); first = false { // it is renewed
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				for range 30 {
					if err := l.Do(t.Context(), "product", fmt.Sprint(i), Nothing); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	if err = context.Cause(held.Context()); err == nil {
		err = held.Release(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
}

// Outage is a Locker whose server goes away and comes back: callers are refused at once meanwhile, and acquire locks again afterwards.
func Outage(t *testing.T, b distributed.Backend, s *testproc.Server) {
	l := On(t, b, wllock.WithLeaseTTL(4*TTL))
	do := func() error { return l.Do(t.Context(), "product", "1", Nothing, wllock.WithWait(time.Second)) }
	untilNil(t, do)
	s.Kill()
	untilNil(t, func() error {
		start := time.Now()
		if err := do(); !errors.Is(err, wllock.ErrUnavailable) || time.Since(start) > 10*time.Millisecond {
			return errors.New("not refused at once")
		}
		return nil
	})
	s.Restart()
	untilNil(t, do)
}

// untilNil calls something until it succeeds.
func untilNil(t *testing.T, do func() error) {
	t.Helper()
	err := do()
	for start := time.Now(); err != nil; err = do() {
		if time.Since(start) > 30*time.Second {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}
