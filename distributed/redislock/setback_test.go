package redislock

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// setBack is much longer than T, and shorter than helper keys last: in a script during which the clock is set back by more,
// they have expired.
const setBack = 30 * time.Second

// The lock of a living holder expires when the server's clock is set forward by more than T. It learns of that by its next renewal, and who was
// let in beside it has a larger fence.
func TestAClockSetForwardEndsALease(t *testing.T) {
	testscope.Long(t, "sets a server's clock")
	s, clock := redistest.StartWithClock(t, time.Now())
	clock.Shift(0)
	b := open(t, s.Addr)
	l := newUser(t, b).lease(key(t))
	before, start := fence(t, l), time.Now()
	clock.Shift(40 * time.Second)
	next := newUser(t, b).get(key(t))
	require.Greater(t, fence(t, next), before)
	<-l.Lost()
	inTimeSince(t, start, "the loss", time.Since(start), testTTL/2) // a renewal each T/3, and sooner in the claim window
	require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
	release(t, next)
}

// TestAClockSetBackTakesNoLeaseFromALivingHolder, nor from readers, while others wait.
func TestAClockSetBackTakesNoLeaseFromALivingHolder(t *testing.T) {
	testscope.Long(t, "sets a server's clock")
	for name, change := range map[string]func(*distributed.Request){"writer": exclusive, "reader": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.StartWithClock(t, time.Now())
			clock.Shift(0)
			b := open(t, s.Addr)
			const ttl = 2 * time.Second
			l, w := newUser(t, b).lasting(ttl).lease(key(t), change), newUser(t, b).lasting(ttl/4) // which cuts by the holder's T, not by its own
			var p distributed.Place
			require.Eventually(t, func() bool { _, p, _ = w.enter(t.Context(), key(t)); return p != nil }, patience, time.Millisecond)
			time.Sleep(ttl / 2)
			clock.Shift(-setBack)
			for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 100) {
				granted := len(p.Granted()) > 0
				lives := !distributed.Over(time.Now(), l.Until())
				require.False(t, granted && lives, "beside a living holder")
				if !lives { // it renews each T/3
					needsQuieter(t, ttl/6)
				}
				require.True(t, lives)
			}
			_ = l.Release(t.Context())
		})
	}
}

// TestADeadWaiterAfterTheClockIsSetBack: its last heartbeat seems to be yet to come, for as long as the clock was set back by.
func TestADeadWaiterAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	l := newUser(t, b).lease(key(t), shared)
	crowd(t, b, 1, distributed.Exclusive, testTTL) // a writer that is dead
	p := newUser(t, b).place(key(t), shared)
	waiters := keysOf(key(t), "")[3]
	noted := strings.Fields(s.Do("HGET", waiters, instanceName("deaf0")).(string))
	noted[len(noted)-1] = strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	s.Do("HSET", waiters, instanceName("deaf0"), strings.Join(noted, " "))
	release(t, granted(t, p))
	release(t, l)
}

// The server's clock is set back while permits are held by processes that die: their shares seem to last for hours, more of them than a
// script cuts at once, while a living holder keeps the lock.
func TestDeadPermitsAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	const dead, limit = 150, 151
	living := newUser(t, b).lease(key(t), permit(limit))
	readers := keysOf(key(t), "")[readersKey]
	add := []any{"ZADD", readers}
	for i := range dead {
		add = append(add, time.Now().Add(time.Hour).UnixMilli(), fmt.Sprintf("dead:%d:i%d", i+1, i))
	}
	s.Do(add...)
	inTime(t, "permits of the dead after the clock was set back", testTTL+3*distributed.HeartbeatInterval(testTTL), func() {
		release(t, granted(t, newUser(t, b).place(key(t), permit(limit))))
	})
	release(t, living)
}
