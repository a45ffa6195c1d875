package redislock

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/driver"
)

// A subscription that cannot be made has one line when it goes and one when it is back, however often it is tried in between; one
// that comes and goes has three of each in a minute.
func TestASubscriptionThatFailsHasFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := &Backend{s: &session{ctx: t.Context(), log: slog.New(slog.NewTextHandler(&log, nil))}, nodes: &nodes{}}
		b.client = driver.New(half{b}, clientSettings)
		b.nodes.home = newNode(b)
		u := newSubscription(b)
		u.s.spaces.of("shop", "PROCESS")
		channel := channelOf("shop", "PROCESS")
		lines := func(what string) int { return strings.Count(log.String(), what) }
		fail := func(times int) {
			for range times {
				u.OnDisconnect(errors.New("refused"))
				time.Sleep(time.Second)
			}
		}
		u.OnSubscribe(channel)
		require.Empty(t, log.String(), "the first is no news")
		fail(600)
		u.OnSubscribe(channel)
		require.Equal(t, []int{1, 1}, []int{lines("subscription lost"), lines("subscription is back")})
		time.Sleep(time.Hour)
		for range 20 {
			fail(1)
			u.OnSubscribe(channel)
		}
		require.Equal(t, []int{4, 4}, []int{lines("subscription lost"), lines("subscription is back")})
		fail(60)
		require.Equal(t, 5, lines("subscription lost"), "it stays away")
	})
}
