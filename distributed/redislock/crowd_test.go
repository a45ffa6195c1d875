package redislock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
)

// crowd enters n instances of a process that hears nothing and sends no heartbeats.
func crowd(t *testing.T, b *Backend, n int, mode distributed.Mode, ttl time.Duration) (all []wireAttempt) {
	t.Helper()
	from := &sender{process: "deaf"}
	from.single.Store(b.s.single.Load())
	all = make([]wireAttempt, n)
	for i := range all {
		all[i].init(from, from.process, identity.NewAttempt(uint64(i+1)), key(t), fmt.Sprint("deaf", i), mode, ttl, distributed.ClaimWindow(ttl))
		c := all[i].enter(noPrev, false)
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
	}
	return all
}

// TestDeadWaitersAreSkippedAFewAtATime: a release skips 64 of them and asks the last waiter to go on.
func TestDeadWaitersAreSkippedAFewAtATime(t *testing.T) {
	t.Parallel()
	_, b := openNew(t)
	l := newUser(t, b).lasting(30 * time.Second).lease(key(t))
	crowd(t, b, 200, distributed.Exclusive, distributed.MinTTL)
	time.Sleep(2*distributed.MinTTL + 100*time.Millisecond)       // they are dead whatever PUBLISH says
	last := newUser(t, b).lasting(30 * time.Second).place(key(t)) // whose own heartbeats are a second apart

	c := l.a.Wire.leave()
	b.s.tr.Do(t.Context(), c)
	require.Equal(t, "released", c.Reply)
	inTime(t, "200 dead waiters", 100*time.Millisecond, func() { release(t, granted(t, last)) })
}

// TestManyReadersEnterInOrder: a release admits 64, and a heartbeat admits more.
func TestManyReadersEnterInOrder(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
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

// A script of an older version does not know waiters with a limit: it drops them, and they queue anew. It lets nobody in too many.
func TestAnOlderVersionDropsWaitersForPermits(t *testing.T) {
	t.Parallel()
	_, b := openNew(t)
	text := strings.Replace(leaveScript.Text, "([xs])(%d*) (%d+) (%d+)$", "([xs]) (%d+) (%d+)$", 1)
	text = strings.Replace(text, "local a, p, m, most, t, beat =", "local most, a, p, m, t, beat = nil,", 1)
	require.NotEqual(t, leaveScript.Text, text)
	older := conn.NewScript("leave of an older version", text)

	writer := newUser(t, b).lease(key(t))
	waiters := []user{newUser(t, b), newUser(t, b)}
	places := []distributed.Place{waiters[0].place(key(t), permit(1)), waiters[1].place(key(t), permit(1))}
	c := writer.a.Wire.leave()
	c.Script = older
	older.Head(c.Args, keyCount)
	b.s.tr.Do(t.Context(), c)
	require.Equal(t, "released", c.Reply)
	for _, p := range places {
		_, ok := <-p.Granted()
		require.False(t, ok, "the place was dropped")
	}
	l := waiters[0].get(key(t), permit(1))
	passOn(t, l, waiters[1].place(key(t), permit(1)))
}
