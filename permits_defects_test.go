package wllock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// The tests of this file are named after what other semaphores over a service are known for.

// Redisson's RSemaphore counts what is free, so a process that dies keeps its permits for ever (redisson #2045).
func TestPermitsAreFreeAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		dead, other := lockerOn(t, m), lockerOn(t, b)
		victims := []*guest{comes(t, dead, wllock.Permits(3), wllock.WithLockTimeMax(0)), comes(t, dead, wllock.Permits(3), wllock.WithLockTimeMax(0))}
		fellow := comes(t, other, wllock.Permits(3), wllock.WithLockTimeMax(0))
		line := []*guest{comes(t, other, wllock.Permits(3)), comes(t, other, wllock.Permits(3))}
		time.Sleep(3 * ttl)
		require.Equal(t, []string{"waiting", "waiting"}, are(line...))
		m.die()
		time.Sleep(ttl + ttl/10)
		require.Equal(t, []string{"in", "in", "in"}, are(fellow, line[0], line[1]))
		require.Equal(t, []string{"lost", "lost"}, are(victims...))
		leaves(fellow, line[0], line[1])
		nothingLeft(t, b, other)
	})
}

// A process that dies in line holds nobody up for longer than its place lasts.
func TestPermitsPassAWaiterThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		dead, other := lockerOn(t, m), lockerOn(t, b)
		holder := comes(t, other, wllock.Permits(1))
		victim, next := comes(t, dead, wllock.Permits(1)), comes(t, lockerOn(t, b), wllock.Permits(1))
		m.die()
		leaves(holder) // the grant goes to the dead one, and is not claimed
		time.Sleep(ttl)
		require.Equal(t, "in", next.state())
		leaves(next)
		victim.end()
		synctest.Wait()
	})
}

// RPermitExpirableSemaphore missed releases, and its waiters hung (redisson #5762). Here each release wakes the next, also if it
// meets a cancellation at the same moment.
func TestNoReleaseOfAPermitIsMissed(t *testing.T) {
	const n, callers, rounds = 2, 12, 60
	b := memlock.New()
	lockers := []*wllock.Locker{lockerOn(t, b), lockerOn(t, b, wllock.WithMaxHandoffs(0)), lockerOn(t, b, wllock.WithMaxHandoffs(2))}
	var inside, done atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for round := range rounds {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if round%3 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(round)*20*time.Microsecond)
				}
				err := lockers[i%3].Do(ctx, "n", "k", func(context.Context) error {
					if now := inside.Add(1); now > n {
						t.Errorf("%d of %d are inside", now, n)
					}
					time.Sleep(50 * time.Microsecond)
					inside.Add(-1)
					done.Add(1)
					return nil
				}, wllock.Permits(n))
				cancel()
				if round%3 != 0 && err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, done.Load(), int32(callers*rounds*2/3))
}

// Asking for more than one permit at once hung (redisson #6664). Here a program asks for several one inside the other, of several
// keys; of one key they are one.
func TestMoreThanOnePermitDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
			return l.Do(ctx, "n", "b", func(ctx context.Context) error {
				return l.Do(ctx, "n", "a", nothing, wllock.Permits(1), wllock.NoWait())
			}, wllock.Permits(1))
		}, wllock.Permits(1)))
		all := []*guest{comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3))}
		require.Equal(t, []string{"in", "in", "in"}, are(all...))
		leaves(all...)
		require.Zero(t, time.Since(begin))
		nothingLeft(t, b, l)
	})
}

// Semaphores left keys without a TTL (redisson #4100, #6302), here after callers that were served, gave up, and died.
func TestPermitsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		l, dead := lockerOn(t, b), lockerOn(t, m)
		all := []*guest{comes(t, l, wllock.Permits(2)), comes(t, dead, wllock.Permits(2)), comes(t, l, wllock.Permits(2)), comes(t, dead, wllock.Permits(2))}
		all[2].end()
		m.die()
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"in", "lost", "canceled", "lost"}, are(all...), "the last one got its permit when it was dead")
		leaves(all[0])
		time.Sleep(2 * ttl)
		page, _, err := b.List(t.Context(), "test:", "", 9)
		require.NoError(t, err)
		require.Empty(t, page)
	})
}

// Curator does not check that processes agree on n, and a wrong one lets in as it likes. Here each goes by its own, and the largest
// bounds them all.
func TestPermitsOfProcessesThatDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		few := []*guest{comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))}
		require.Equal(t, []string{"in", "in", "waiting"}, are(few...))
		many := []*guest{comes(t, other, wllock.Permits(4)), comes(t, other, wllock.Permits(4)), comes(t, other, wllock.Permits(4))}
		require.Equal(t, []string{"in", "in", "waiting"}, are(many...))
		leaves(many[:2]...)
		require.Equal(t, []string{"waiting", "in"}, are(few[2], many[2]))
		leaves(few[0], many[2])
		require.Equal(t, []string{"in", "in"}, are(few[1], few[2]))
		leaves(few[1:]...)
		nothingLeft(t, b, l, other)
	})
}

// redis-semaphore has no fences (#127): a store cannot tell a holder that was paused for too long from the one that has its permit
// now.
func TestPausedPermitHasASmallerFenceThanLaterOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		paused := comes(t, l, wllock.Permits(1), wllock.WithLockTimeMax(0))
		b.Expire("test:n:k")
		next := comes(t, lockerOn(t, b), wllock.Permits(1))
		require.Greater(t, next.fence, paused.fence)
		leaves(next)
		time.Sleep(ttl)
		require.Equal(t, "lost", paused.state())
	})
}
