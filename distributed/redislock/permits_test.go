package redislock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// permit asks for one of n permits.
func permit(n int) func(*distributed.Request) {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

// The server's clock is set back while permits are held by processes that die: their shares seem to last for hours, more of them than a
// script cuts at once, while a living holder keeps the lock.
func TestDeadPermitsAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	const dead, limit = 150, 151
	living := newUser(t, b).lease(key(t), permit(limit))
	readers := keysOf(key(t), "")[readersKey]
	add := []any{"ZADD", readers}
	for i := range dead {
		add = append(add, time.Now().Add(time.Hour).UnixMilli(), fmt.Sprintf("dead:%d:i%d", i+1, i))
	}
	s.Do(add...)
	start := time.Now()
	p := newUser(t, b).place(key(t), permit(limit))
	l := granted(t, p)
	inTime(t, "permits of the dead after the clock was set back", time.Since(start), testTTL+3*distributed.HeartbeatInterval(testTTL))
	release(t, l)
	release(t, living)
}

// A script of an older version does not know waiters with a limit: it drops them, and they queue anew. It lets nobody in too many.
func TestAnOlderVersionDropsWaitersForPermits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
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
	p := waiters[1].place(key(t), permit(1))
	release(t, l)
	release(t, granted(t, p))
}

func TestInspectShowsPermits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	one, two := newUser(t, b), newUser(t, b)
	waiter, reader := newUser(t, b), newUser(t, b)
	l, l2 := one.lease(key(t), permit(2)), two.lease(key(t), permit(2))
	p, q := waiter.place(key(t), permit(2)), reader.place(key(t), shared)
	s.Do("ZADD", keysOf(key(t), "")[readersKey], time.Now().Add(-time.Second).UnixMilli(), "dead:1:dead") // it has expired, and is not pruned yet
	found := inspect(t, b, key(t))
	require.Len(t, found.Holders, 2)
	require.Zero(t, found.MoreHolders, "one that has expired is none")
	require.Equal(t, distributed.Shared, found.Mode)
	var all []distributed.Waiter
	for _, w := range found.Waiters {
		w.Since = time.Time{}
		all = append(all, w)
	}
	require.Equal(t, []distributed.Waiter{
		{Instance: waiter.name, Mode: distributed.Shared, Limit: 2}, {Instance: reader.name, Mode: distributed.Shared},
	}, all)
	release(t, l)
	release(t, granted(t, p))
	release(t, granted(t, q))
	release(t, l2)
}
