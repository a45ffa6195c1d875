package redislock

import (
	"strconv"
	"strings"
	"sync/atomic"
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

// runClock lets the clock of a server run, less what by says.
func runClock(t *testing.T, clock *redistest.Clock, start time.Time) (by *atomic.Int64) {
	t.Helper()
	by = new(atomic.Int64)
	done, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				clock.Set(start.Add(time.Since(began) - time.Duration(by.Load())))
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return by
}

// TestAClockSetBackTakesNoLeaseFromALivingHolder, nor from readers, while others wait.
func TestAClockSetBackTakesNoLeaseFromALivingHolder(t *testing.T) {
	testscope.Long(t, "sets a server's clock")
	for name, change := range map[string]func(*distributed.Request){"writer": func(*distributed.Request) {}, "reader": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			s, clock := redistest.StartWithClock(t, now)
			by := runClock(t, clock, now)
			b := open(t, s.Addr)
			l := newUser(t, b).lease(key(t), change)
			p := newUser(t, b).lasting(testTTL / 4).place(key(t)) // which cuts by the holder's T, not by its own
			time.Sleep(testTTL / 2)
			by.Store(int64(setBack))
			for end := time.Now().Add(3 * testTTL); time.Now().Before(end); time.Sleep(testTTL / 20) {
				require.Empty(t, p.Granted())
				require.True(t, l.Until().After(time.Now()))
			}
			release(t, l)
			release(t, granted(t, p))
		})
	}
}

// TestADeadWaiterAfterTheClockIsSetBack: its last heartbeat seems to be yet to come, for as long as the clock was set back by.
func TestADeadWaiterAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
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
