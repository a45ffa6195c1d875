package stack_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
)

// hangs is a backend behind a network that drops everything until a given time.
type hangs struct {
	distributed.Backend
	until time.Time
}

func (b *hangs) Ping(ctx context.Context) error {
	if time.Now().Before(b.until) {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.Backend.Ping(ctx)
}

func (b *hangs) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if time.Now().Before(b.until) {
		select {
		case <-time.After(5 * time.Second): // a dial time-out
			return nil, nil, distributed.ErrUnavailable
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return b.Backend.Enter(ctx, req)
}

// The backend hangs for 60 s under load: after the first silence all calls are refused at once; 2 s after its return none is
// refused any more.
func TestFailClosedAnswersFastAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hangs{Backend: memlock.New(), until: time.Now().Add(time.Minute)}
		l := lockerOn(t, b)
		slow, fast := 0, 0
		for i := range 700 {
			asked := time.Now()
			err := l.Do(t.Context(), "n", strconv.Itoa(i), nothing)
			if asked.After(b.until.Add(2 * time.Second)) {
				require.NoError(t, err)
			} else if err != nil {
				var e *wllock.Error
				require.ErrorAs(t, err, &e)
				require.ErrorIs(t, err, wllock.ErrUnavailable)
				require.Positive(t, e.RetryAfter)
				if time.Since(asked) < time.Millisecond {
					require.Less(t, e.RetryAfter, time.Second)
					fast++
				} else {
					slow++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, slow, 5)
		require.Greater(t, fast, 100)
	})
}

// The lease that a refused Enter was to release is released all the same: when the backend is back, another instance gets
// the lock at once, and Close has nothing to wait for.
func TestRefusedEnterStrandsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0), wllock.WithLeaseTTL(time.Hour))
		release := hold(t, l, "n", "k", wllock.WithLockTimeMax(0))
		b.Partition(true)
		for range 3 {
			require.ErrorIs(t, l.Do(t.Context(), "n", "other", never(t)), wllock.ErrUnavailable)
		}
		next := make(chan error, 1)
		go func() { next <- l.Do(context.Background(), "n", "k", never(t)) }() // its Enter names the lease
		synctest.Wait()
		go func() { _ = l.Do(context.Background(), "n", "k", nothing) }() // keeps the release of the first one from asking
		synctest.Wait()
		release()
		require.ErrorIs(t, <-next, wllock.ErrUnavailable)
		b.Partition(false)
		time.Sleep(time.Second)
		require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.WithWait(time.Second)))
	})
}

// In real time: a refusal takes microseconds.
func TestOpenPathIsFast(t *testing.T) {
	testscope.Long(t, "measures")
	l, b := newLocker(t)
	b.Partition(true)
	defer b.Partition(false)
	refused := func() { require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable) }
	for range 3 {
		refused()
	}
	const many = 1000
	begin := time.Now()
	for range many {
		refused()
	}
	require.Less(t, time.Since(begin)/many, time.Millisecond)
}

func BenchmarkOutage(b *testing.B) {
	l, backend := newLocker(b)
	backend.Partition(true)
	defer backend.Partition(false)
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Do(context.Background(), "n", "k", nothing)
	}
}

// A hundred instances want one lock while the backend is away for a minute. They do not ask it in the same moment whether it is back, the first
// has the lock within two seconds, and all of them are served.
func TestAHundredInstancesAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, back := memlock.New(), time.Now().Add(time.Minute)
		var mu sync.Mutex
		var first time.Time              // guarded by mu; when a caller was inside
		asked := map[time.Duration]int{} // guarded by mu; how many have asked, by the time before the return
		var all sync.WaitGroup
		for range 100 {
			l := lockerOn(t, &asks{hangs{Backend: b, until: back}, func() {
				mu.Lock()
				defer mu.Unlock()
				asked[time.Until(back)]++
			}})
			all.Go(func() {
				for began := time.Now(); ; {
					err := l.Do(t.Context(), "n", "k", func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						if first.IsZero() {
							first = time.Now()
						}
						return nil
					})
					if err == nil || time.Since(began) > 2*time.Minute {
						assert.NoError(t, err)
						return
					}
					var e *wllock.Error
					if assert.ErrorAs(t, err, &e) && assert.ErrorIs(t, err, wllock.ErrUnavailable) {
						time.Sleep(e.RetryAfter)
					}
				}
			})
		}
		all.Wait()
		require.WithinRange(t, first, back, back.Add(2*time.Second))
		for left, n := range asked {
			if left < 50*time.Second { // they have begun together
				require.Less(t, n, 20, "%v before the return", left)
			}
		}
	})
}

// asks tells of each question whether the backend is back.
type asks struct {
	hangs
	note func()
}

func (b *asks) Ping(ctx context.Context) error {
	b.note()
	return b.hangs.Ping(ctx)
}
