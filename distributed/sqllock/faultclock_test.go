package sqllock_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// A client whose clock is an hour ahead of the database's sees what a database an hour behind shows, so it is the database's
// clock that differs here. (A Go program asks the kernel for the time and cannot be given another one; and SQLite has the clock of
// its process's machine.)
func TestClocksThatDifferByAnHourMakeNoDifference(t *testing.T) {
	testscope.Long(t, "sets the clocks of servers")
	onClocks(t, func(t *testing.T, d database, c *testproc.Clock) {
		for name, shift := range map[string]time.Duration{"client ahead": -time.Hour, "client behind": time.Hour} {
			t.Run(name, func(t *testing.T) {
				c.Shift(shift)
				near, far, key := d.backend(t, nil), d.backend(t, nil), newName("k")
				l := acquired(t, near, request(key, kept))
				first := fence(t, l)
				p := place(t, far, request(key, kept))
				select {
				case <-p.Granted():
					t.Fatal("a lease that is renewed was taken over")
				case <-time.After(keptTTL * 3 / 4): // longer than the claim window
				}
				require.False(t, distributed.Over(time.Now(), l.Until()), "it is renewed")
				l.Abandon()
				start := time.Now()
				next := granted(t, p)
				within(t, "a grant after the holder has died", time.Since(start), keptTTL+distributed.HeartbeatInterval(keptTTL))
				require.Greater(t, fence(t, next), first)
			})
		}
	})
}

// No argument of any statement is a time by this machine's clock: neither as a time.Time, nor as a number in some unit that lies
// within a year of now. Fences are times of the database's clock, which differs by ten years here.
func TestNoStatementHasATimeOfTheClient(t *testing.T) {
	testscope.Long(t, "plays every statement")
	const apart = 10 * 365 * 24 * time.Hour
	onClocks(t, func(t *testing.T, d database, c *testproc.Clock) {
		c.Shift(-apart)
		w := &wire{}
		b, key := d.backend(t, w), newName("k")
		r := request(key, lasting(4*faultTTL))
		r.Prev = acquired(t, b, r)
		l := acquired(t, b, r)
		p := place(t, b, request(key, lasting(4*faultTTL)))
		claimed(t, l)
		time.Sleep(distributed.HeartbeatInterval(4*faultTTL) * 3 / 2)
		require.NoError(t, l.Refill(t.Context()))
		release(t, l)
		release(t, granted(t, p))
		require.NoError(t, b.Ping(t.Context()))
		args := w.arguments()
		require.Greater(t, len(args), 20)
		for _, a := range args {
			_, isTime := a.(time.Time)
			require.False(t, isTime)
			n, isNumber := a.(int64)
			for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
				now := time.Now().UnixNano() / int64(unit)
				year := int64(365 * 24 * time.Hour / unit)
				require.False(t, isNumber && n > now-year && n < now+year, "%d is a time in %v", n, unit)
			}
		}
	})
}

// A step of the database's clock is what the locks depend on. Forward: they may expire there at once, and their holders learn it when
// they look or renew.
func TestClockOfTheDatabaseIsSetForward(t *testing.T) {
	onClocks(t, func(t *testing.T, d database, c *testproc.Clock) {
		near, far, key := d.backend(t, nil), d.backend(t, nil), newName("k")
		l := acquired(t, near, request(key, safely))
		first := fence(t, l)
		p := place(t, far, request(key, safely))
		c.Shift(time.Hour)
		next := granted(t, p)
		if next == nil { // its place has expired as well
			next = acquired(t, far, request(key, safely))
		}
		require.Greater(t, fence(t, next), first)
		lost(t, l)
	})
}

// Back: a right lasts no longer than its TTL from when somebody has looked, so dead holders' locks last up to 2 T; and fences go on.
func TestClockOfTheDatabaseIsSetBack(t *testing.T) {
	testscope.Long(t, "sets the clocks of servers")
	onClocks(t, func(t *testing.T, d database, c *testproc.Clock) {
		near, far := d.backend(t, nil), d.backend(t, nil)
		begin := func() (key string, fenced uint64) {
			key = newName("k")
			l := acquired(t, near, request(key, kept))
			fenced = fence(t, l)
			claimed(t, l)
			l.Abandon()
			return key, fenced
		}
		asked, before := begin()
		tried, beforeTried := begin()
		queued, beforeQueued := begin()
		dead := startChild(t, "hold", d.where(), queued, keptTTL)
		dead.says("queued")
		p := place(t, far, request(queued, safely))
		dead.signal(syscall.SIGKILL)
		c.Shift(-time.Hour)
		follows := func(what string, start time.Time, next distributed.Lease, old uint64) {
			within(t, "a grant to "+what+" after the holder has died and the clock was set back", time.Since(start), 2*keptTTL)
			require.Greater(t, fence(t, next), old)
		}
		start := time.Now()
		follows("one that was queued", start, granted(t, p), beforeQueued)
		start = time.Now()
		follows("one that asks", start, acquired(t, far, request(asked, safely)), before)
		start = time.Now()
		noWait := request(tried, safely, func(r *distributed.Request) { r.NoWait = true })
		follows("one that does not wait", start, acquired(t, far, noWait), beforeTried)
	})
}

// onClocks is onServers for servers that have a clock each.
func onClocks(t *testing.T, test func(t *testing.T, d database, c *testproc.Clock)) {
	t.Helper()
	together(t, servers(), func(t *testing.T, start starter) {
		c := testproc.NewClock(t)
		test(t, start(t, dbtest.Clock(c)), c)
	})
}
