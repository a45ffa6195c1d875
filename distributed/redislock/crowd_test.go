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
	for i := range n {
		all = append(all, from.attempt(identity.NewAttempt(uint64(i+1)), key(t), fmt.Sprint("deaf", i), mode, ttl, distributed.ClaimWindow(ttl)))
		c := all[i].enter(noPrev)
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

// TestAScriptSkips64DeadWaiters, and nobody is granted the lock meanwhile: those behind them may live.
func TestAScriptSkips64DeadWaiters(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l := newUser(t, b).lasting(30 * time.Second).lease(key(t))
	dead := crowd(t, b, 200, distributed.Exclusive, distributed.MinTTL)
	time.Sleep(2*distributed.MinTTL + 100*time.Millisecond)
	release(t, l)
	require.Equal(t, int64(200-64), queueLength(s, key(t)))
	require.Nil(t, s.Do("GET", key(t)))

	beat := dead[199].heartbeat() // which lives after all
	for _, left := range []int64{200 - 2*64, 200 - 3*64} {
		b.s.tr.Do(t.Context(), beat)
		require.Equal(t, position{}, readStanding(beat.Reply, time.Time{}).position, "it goes on at once")
		require.Equal(t, left, queueLength(s, key(t)))
	}
	b.s.tr.Do(t.Context(), beat)
	require.Equal(t, string(hasLease), answered(beat))
	require.Zero(t, queueLength(s, key(t)))
}

// TestADozenDeadWaitersLeaveTheHeadAChance: where all look dead, it is the head's turn, and no place is lost.
func TestADozenDeadWaitersLeaveTheHeadAChance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l := newUser(t, b).lasting(30 * time.Second).lease(key(t))
	const ttl = 18 * distributed.MinTTL // the head's claim window outlasts a busy machine
	dead := crowd(t, b, 12, distributed.Exclusive, ttl)
	time.Sleep(2*ttl + 100*time.Millisecond)
	release(t, l)
	require.Contains(t, s.Do("GET", key(t)), *dead[0].args[tokenArg].(*string))
	require.Equal(t, int64(11), queueLength(s, key(t)))
}

// TestAWriterNotifies64Readers: the others learn of it when they renew, because they do so sooner.
func TestAWriterNotifies64Readers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	first := crowd(t, b, 100, distributed.Shared, 30*time.Second)[0]
	youngest := newUser(t, b).lasting(60*time.Second).lease(key(t), shared)
	before := commandStats(s)["publish"]
	newUser(t, b).place(key(t))
	require.Equal(t, 64, commandStats(s)["publish"]-before)
	require.Eventually(t, youngest.Contended, patience, time.Millisecond)

	c := first.renew()
	b.s.tr.Do(t.Context(), c)
	require.Equal(t, renewReply{held: true, contended: true}, readRenew(c.Reply))
}
