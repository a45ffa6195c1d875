package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestPauses(t *testing.T) {
	for k := range 100 {
		require.LessOrEqual(t, backoff(k), longestBackoff)
		p := splitPause(k, time.Millisecond, time.Second)
		require.GreaterOrEqual(t, p, time.Millisecond, "no tighter than a round trip")
		require.LessOrEqual(t, p, time.Second)
		require.LessOrEqual(t, grace(time.Second, time.Duration(k)*time.Millisecond), tryTimeout(time.Second, time.Duration(k)*time.Millisecond))
	}
	for _, test := range []struct{ ttl, rtt, want time.Duration }{
		{distributed.MinTTL, 1, shortestTry},
		{distributed.MinTTL, 0, distributed.MinTTL / 2},
		{5 * time.Second, time.Millisecond, 5 * time.Second / 6},
		{5 * time.Second, 300 * time.Millisecond, coldTrips * 300 * time.Millisecond},
		{5 * time.Second, time.Minute, 5 * time.Second / 2},
		{5 * time.Second, 0, 5 * time.Second / 2},
		{time.Second, 100 * time.Millisecond, coldTrips * 100 * time.Millisecond},
		{time.Second, time.Minute, longestTry},
		{time.Hour, time.Millisecond, longestTry},
		{time.Hour, time.Minute, connectTimeout},
		{time.Hour, 0, connectTimeout},
	} {
		require.Equal(t, test.want, tryTimeout(test.ttl, test.rtt), "%+v", test)
	}
}
