package redislock

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// TestManyLeases holds very many leases in one process: a fixed number of goroutines renews them, each in time.
func TestManyLeases(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	t.Run("2000", func(t *testing.T) {
		t.Parallel()
		manyLeases(t, 2000, 3*time.Second)
	})
	t.Run("100000", func(t *testing.T) {
		testscope.Longest(t, "a load on one server for seconds")
		if race.Enabled {
			manyLeases(t, 20_000, 5*time.Second) // what the detector adds is many times the work
			return
		}
		manyLeases(t, 100_000, 5*time.Second)
	})
}

// TestRenewedTogether is one call for leases of which one is held, one deleted, one another's, and one contended.
func TestRenewedTogether(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b).lasting(30 * time.Second) // the Keeper renews nothing meanwhile
	var batch []*attempt
	var leases []*lease
	for i := range 4 {
		l := u.lease(fmt.Sprint(key(t), i))
		batch, leases = append(batch, l.a), append(leases, l)
	}
	s.Do("DEL", batch[1].Key)
	s.Do("SET", batch[2].Key, "another's")
	wants := newUser(t, open(t, s.Addr)).lasting(30 * time.Second).place(batch[3].Key)

	c := renewAll(batch[0].TTL, len(batch), func(i int) *wireAttempt { return &batch[i].Wire.wireAttempt })
	u.b.s.tr.Do(conn.Within(t.Context(), time.Second), c)
	require.NoError(t, c.Err)
	require.Equal(t, "hllw", c.Reply)

	require.True(t, u.b.s.renewTogether(t.Context(), batch))
	for i, l := range leases {
		require.Equal(t, i == 0 || i == 3, l.Healthy(), i)
		if l.Healthy() {
			require.Greater(t, s.Do("PTTL", l.a.Key), int64(29_000), "claimed")
		}
	}
	require.True(t, leases[3].Contended())
	require.Equal(t, "another's", s.Do("GET", batch[2].Key))
	require.False(t, u.b.s.renewTogether(t.Context(), batch[:1]), "a lease alone")
	release(t, leases[0])
	passOn(t, leases[3], wants)
}

// TestADowngradeThatOvertakesARenewalOfOneKey: the renewal was made for an exclusive lease, and finds a shared one.
func TestADowngradeThatOvertakesARenewalOfOneKey(t *testing.T) {
	t.Parallel()
	_, b := openNew(t)
	u := newUser(t, b).lasting(30 * time.Second) // the Keeper renews nothing meanwhile
	var l *lease
	var once sync.Once
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		if calls[0].Script == renewOneScript {
			once.Do(func() { require.NoError(t, l.Downgrade(t.Context())) })
		}
		next.Do(ctx, calls...)
	})
	l = u.lease(key(t))
	for range 2 { // the second one knows
		u.b.s.renewMoving(t.Context(), []*attempt{l.a}, u.ttl)
		require.Equal(t, distributed.Shared, modeOf(l.a))
		require.True(t, l.Healthy())
	}
	release(t, l)
}

// TestADowngradeWithoutAReplyIsRenewedWhileItsSlotMoves: the lease is renewed as what it was, and then as what it may be.
func TestADowngradeWithoutAReplyIsRenewedWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b).lasting(30 * time.Second) // the Keeper renews nothing meanwhile
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		next.Do(ctx, calls...)
		if c := calls[0]; c.Script == downgradeScript {
			c.Reply, c.Err = "", context.DeadlineExceeded
		}
	})
	l := u.lease(key(t))
	require.Error(t, l.Downgrade(within(t, 300*time.Millisecond)))
	require.Contains(t, s.Do("GET", l.a.Key), "wllock:s:")
	s.Do("PEXPIRE", l.a.Key, 10_000)
	u.b.s.renewMoving(t.Context(), []*attempt{l.a}, u.ttl)
	require.Greater(t, s.Do("PTTL", l.a.Key), int64(29_000))
	require.True(t, l.Healthy())

	s.Do("DEL", l.a.Wire.keys[readersKey])
	u.b.s.renewMoving(t.Context(), []*attempt{l.a}, u.ttl)
	require.False(t, l.Healthy(), "lost as either")
	require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
}

// The answer to a downgrade is one to a renewal, too: the lease lasts for T from its sending, and may be contended.
func TestADowngradeRenews(t *testing.T) { // rule R11
	synctest.Test(t, func(t *testing.T) {
		b := openStub(t, func(c *conn.Call) (string, error) {
			if c.Script == downgradeScript {
				return "fences 4000000000000001000 1 1", nil
			}
			return "lease 4000000000000000000 1000 0", nil
		}, "shop")
		u := newUser(t, b).lasting(time.Minute)
		l := u.lease("shop:1")
		time.Sleep(time.Second)
		require.NoError(t, l.Downgrade(t.Context()))
		require.Equal(t, distributed.Validity(time.Now(), u.ttl), l.Until())
		require.True(t, l.Contended())
	})
}

// TestALostReaderExtendsNoLock: a renewal by calls of one key looks for the reader first.
func TestALostReaderExtendsNoLock(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b).lasting(30 * time.Second) // the Keeper renews nothing meanwhile
	l := u.lease(key(t), shared)
	renew := func() { u.b.s.renewMoving(t.Context(), []*attempt{l.a}, u.ttl) }
	renew()
	require.True(t, l.Healthy())
	require.Greater(t, s.Do("PTTL", l.a.Key), int64(29_000), "claimed")
	s.Do("DEL", l.a.Wire.keys[readersKey])
	s.Do("PEXPIRE", l.a.Key, 1000)
	renew()
	require.False(t, l.Healthy())
	require.LessOrEqual(t, s.Do("PTTL", l.a.Key), int64(1000))
}

const (
	fillers        = 64 // goroutines that take the leases, and end
	mostGoroutines = 40 // that one backend may need, whatever it holds
)

// manyLeases takes n leases and has them for four T.
func manyLeases(t *testing.T, n int, ttl time.Duration) {
	s := redistest.Start(t)
	before := runtime.NumGoroutine() // other tests wait for their turn to run in parallel
	b := open(t, s.Addr)
	u := newUser(t, b).lasting(ttl)
	release(t, u.lease(key(t)))
	leases, next := make([]*lease, n), atomic.Int64{}
	var wg sync.WaitGroup
	for range fillers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				leases[i] = u.lease(fmt.Sprint("shop:order:", i))
			}
		})
	}
	wg.Wait()
	for start := time.Now(); time.Since(start) < 4*ttl; time.Sleep(ttl / 50) {
		require.Less(t, runtime.NumGoroutine()-before, mostGoroutines)
	}
	for _, l := range leases {
		if !l.Healthy() {
			needsQuieter(t, distributed.HeartbeatInterval(ttl)/4) // each renewal is a call with hundreds of leases
		}
		require.True(t, l.Healthy())
	}
}
