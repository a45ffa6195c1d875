package sqllock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// A client whose clock is years off sees what a database whose clock is years off shows. No argument of a statement is a time by the
// client's clock: neither as a time.Time, nor as a number in some unit that lies within a year of now. A lease is kept, and ends.
func TestClocksMayDiffer(t *testing.T) {
	testscope.Long(t, "sets the clocks of servers")
	const apart = 10 * 365 * 24 * time.Hour
	for name, shift := range map[string]time.Duration{"client ahead": -apart, "client behind": apart} {
		t.Run(name, func(t *testing.T) {
			clock := testproc.NewClock(t)
			clock.Shift(shift)
			onOwnServers(t, lifeOnAnotherClock, dbtest.Clock(clock))
		})
	}
}

func lifeOnAnotherClock(t *testing.T, d *database) {
	b, long := d.backend(t), lasting(2*ttl)
	var arguments atomic.Int64
	d.wire.breaksBy(func(s *statement) fault {
		for _, a := range s.args {
			arguments.Add(1)
			assert.False(t, isNow(a.Value), "%s: %v", s.text, a.Value)
		}
		return passes
	})
	l := enter(t, b, "k", long, prevIs(enter(t, b, "k", long)))
	first := fenceOf(t, l)
	p := queue(t, d.backend(t), "k")
	require.NoError(t, l.Refill(t.Context()))
	select {
	case <-p.Granted():
		t.Fatal("a lease that is renewed was taken over")
	case <-time.After(ttl * 3 / 2): // longer than the claim window
	}
	l.Abandon()
	start := time.Now()
	next := awaited(t, p)
	testscope.InTime(t, time.Since(start), 3*ttl+slack, "a grant after the holder has died")
	require.Greater(t, fenceOf(t, next), first)
	free(t, next)
	require.NoError(t, b.Ping(t.Context()))
	d.wire.filtered(nil)
	require.Greater(t, arguments.Load(), int64(20))
}

// isNow reports that a value is a time of about now.
func isNow(value any) bool {
	if _, is := value.(time.Time); is {
		return true
	}
	n, is := value.(int64)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
		now, year := time.Now().UnixNano()/int64(unit), int64(365*24*time.Hour/unit)
		if is && n > now-year && n < now+year {
			return true
		}
	}
	return false
}

// The database's clock is set back by an hour. A right lasts no longer than its TTL from when somebody has looked, so what a dead process had
// is free soon: for one that asks, for one that is queued behind it, and for one that does not wait. Fences go on.
func TestClockIsSetBack(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		before := map[string]uint64{"asked": 0, "tried": 0, "queued": 0}
		for key := range before {
			l := enter(t, b, key)
			before[key] = fenceOf(t, l) + uint64(time.Hour)
			l.Abandon()
		}
		next := lasting(10 * time.Second)
		queued := queue(t, b, "queued", by("next"), next)
		aged(t, b, -time.Hour) // what is there now comes from an hour ahead, and what is dead has had a short TTL
		run(t, b, "UPDATE {locks} SET fence = fence + $1, ttl = $2", int64(time.Hour), micros(time.Second))
		start := time.Now()
		asked, tried := queue(t, b, "asked", by("next"), next), distributed.Lease(nil)
		require.Eventually(t, func() bool {
			l, _, err := try(t.Context(), b, "tried", by("next"), noWait)
			tried = l
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		for key, l := range map[string]distributed.Lease{"asked": awaited(t, asked), "tried": tried, "queued": awaited(t, queued)} {
			require.Greater(t, fenceOf(t, l), before[key])
			free(t, l)
		}
		testscope.InTime(t, time.Since(start), 5*time.Second, "the grants")
	})
}

// The database's clock is set forward: leases may expire there at once, and their holders learn it when they look or renew.
func TestClockIsSetForward(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		near, far := d.backend(t), d.backend(t)
		l := enter(t, near, "k")
		first := fenceOf(t, l)
		p := queue(t, far, "k")
		aged(t, near, time.Hour)
		regained(t, far, "k", p, first)
		ended(t, l)
	})
}
