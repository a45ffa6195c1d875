package redislock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/redistest"
)

// crowd enters n instances of a process that hears nothing and sends no heartbeats.
func crowd(t *testing.T, b *Backend, n int, mode distributed.Mode, ttl time.Duration) (all []wireAttempt) {
	t.Helper()
	from := &sender{process: "deaf"}
	from.single.Store(b.s.single.Load())
	all = make([]wireAttempt, n)
	for i := range all {
		all[i].init(from, identity.NewAttempt(uint64(i+1)), key(t), fmt.Sprint("deaf", i), mode, ttl, distributed.ClaimWindow(ttl))
		c := all[i].enter(noPrev, false)
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
	}
	return all
}

// TestDeadWaitersAreSkippedAFewAtATime: a release skips 64 of them and asks the last waiter to go on.
func TestDeadWaitersAreSkippedAFewAtATime(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l := newUser(t, b).lasting(30 * time.Second).lease(key(t))
	crowd(t, b, 200, distributed.Exclusive, distributed.MinTTL)
	time.Sleep(2*distributed.MinTTL + 100*time.Millisecond)       // they are dead whatever PUBLISH says
	last := newUser(t, b).lasting(30 * time.Second).place(key(t)) // whose own heartbeats are a second apart

	c := l.a.Wire.leave()
	b.s.tr.Do(t.Context(), c)
	require.Equal(t, "released", c.Reply)
	start := time.Now()
	release(t, granted(t, last))
	inTime(t, "200 dead waiters", time.Since(start), 100*time.Millisecond)
}

// TestManyReadersEnterInOrder: a release admits 64, and a heartbeat admits more.
func TestManyReadersEnterInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	writer := newUser(t, b).lasting(30 * time.Second).lease(key(t))
	all := crowd(t, b, 100, distributed.Shared, 30*time.Second)
	release(t, writer)
	require.Equal(t, int64(36), queueLength(s, key(t)))
	for i, a := range all {
		c := a.heartbeat()
		b.s.tr.Do(t.Context(), c)
		require.Equal(t, string(hasLease), answered(c), i)
		require.Equal(t, i < 64, queueLength(s, key(t)) > 0, i)
	}
}
