package outage_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/testclock"
)

// A process that was stopped during an outage knows nothing of the meantime: service without leases begins one T later, whether service
// itself, the next question or a caller finds out. It is one outage all the same, to callers and in the log.
func TestStopBreaksTheOutage(t *testing.T) { // rule O5
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * ttl // T/2 is longer than any pause between questions
		var log strings.Builder
		b := newObservable(after(time.Millisecond))
		all := policies(t, b, long, logTo(&log))
		k, l := all["closed"], all["local"]
		require.NoError(t, enter(l, ttl))
		canceled := k.Await()
		begin := time.Now()
		at := func(after time.Duration) { time.Sleep(time.Until(begin.Add(after))); synctest.Wait() }
		stopped := func() (resume func()) { // nothing happens any more: all questions hang
			woken := make(chan struct{})
			b.does(func(ctx context.Context) error { <-woken; return unreached(ctx) })
			return func() { b.does(unreached); close(woken) }
		}
		b.does(unreached)
		require.NoError(t, enter(l, ttl), "a place")
		at(ttl)
		resume := stopped()
		at(long)
		require.False(t, l.Degraded(), "service finds out")
		at(16 * ttl)
		resume() // the next question finds out
		at(17 * ttl)
		resume = stopped()
		at(20 * ttl)
		resume() // less than T/2 is no stop
		at(26*ttl - 1)
		require.False(t, l.Degraded())
		at(26 * ttl)
		require.True(t, l.Degraded())
		p, _, err := l.Enter(t.Context(), distributed.Request{})
		require.NoError(t, err)
		require.True(t, p.Healthy())

		at(30 * ttl)
		resume = stopped()
		at(40 * ttl)
		require.False(t, p.Healthy(), "it is handed on to nobody")
		got, place, err := l.Enter(t.Context(), distributed.Request{})
		require.NoError(t, err)
		require.Nil(t, got, "a caller finds out")
		require.NotNil(t, place)
		at(41 * ttl)
		resume()
		at(50*ttl - 1)
		require.False(t, l.Degraded())
		at(50 * ttl)
		require.True(t, l.Degraded())
		require.False(t, p.Healthy(), "others may have had the lock in between")

		<-canceled
		require.Equal(t, canceled, k.Await(), "nor does anybody wait for a grant")
		require.Equal(t, begin, k.Status().Since)
		require.NotContains(t, log.String(), "backend is back")
		require.Equal(t, 2, strings.Count(log.String(), "backend is away: locks are local"))
	})
}

// No pause between questions is a stop, however short T is. It may be over before the outage is known.
func TestServiceBeginsWithAShortTTL(t *testing.T) { // rules O4 and O5
	for _, short := range []time.Duration{distributed.MinTTL, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := newObservable(silently)
			l := policies(t, b, short, silent)["local"]
			b.report(time.Now(), unreached(t.Context()))
			time.Sleep(2500 * time.Millisecond)
			for range 100 {
				require.True(t, l.Degraded(), "T %v", short)
				time.Sleep(ttl / 10)
			}
		})
	}
}

// Either clock tells of a stop: the monotonic one stands still while the machine is suspended, and the wall clock can be set back.
func TestEitherClockTellsOfAStop(t *testing.T) { // rule O5
	for name, c := range map[string]struct {
		both, monotonic time.Duration
		degraded        bool
	}{
		"no stop":                   {0, 0, true},
		"the machine was suspended": {5 * time.Hour, -5 * time.Hour, false},
		"the wall clock is set":     {0, 5 * time.Hour, false},
	} {
		l := outage.NewLocalOnly(outage.Config{Backend: newObservable(unreached), TTL: time.Hour, Logger: silent})
		require.NoError(t, enter(l, time.Hour), "a place")
		left, _ := l.Adopt(newFakeLease(0)).At(testclock.Skew(time.Now().Add(c.both), c.monotonic)) // no bubble: it has one clock
		require.Equal(t, c.degraded, left > 0, name)
		l.Stop()
	}
}
