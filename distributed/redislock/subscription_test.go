package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
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

// What was published while the subscription was away is lost, each time: a grant, and that a lease is wanted.
func TestAReconnectMakesUpForLostMessages(t *testing.T) { // rule R10
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		beats := map[string]int{}
		b := openStub(t, func(c *conn.Call) (string, error) {
			switch {
			case c.Script == enterScript && strings.HasSuffix(c.Key(), "ours"):
				return "lease 4000000000000000000 1000 0", nil
			case c.Script == heartbeatScript: // each may have a goroutine of its own
				mu.Lock()
				defer mu.Unlock()
				beats[c.Key()]++
			}
			return "place 0 -1 0 another 0", nil
		}, "shop", "bank")
		u := newUser(t, b).lasting(time.Minute)
		ours, elsewhere := u.lease("shop:ours"), u.lease("bank:ours")
		for _, theirs := range []string{"shop:1", "shop:2", "bank:1"} {
			u.place(theirs)
		}
		for n := 1; n <= 3; n++ {
			b.sub.OnDisconnect(errors.New("broken"))
			b.sub.OnSubscribe(channelOf("shop", b.s.process))
			time.Sleep(time.Millisecond) // long before the places would ask by themselves
			synctest.Wait()
			require.Equal(t, map[string]int{"shop:1": n, "shop:2": n}, beats)
		}
		require.True(t, ours.Wanted())
		require.False(t, elsewhere.Wanted(), "its channel was not subscribed to anew")
	})
}

// A message has a place ask when it says, which is before it would have asked by itself.
func TestAMessageAsksForAHeartbeat(t *testing.T) { // rule R16
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int64
		b := openStub(t, func(c *conn.Call) (string, error) {
			if c.Script == heartbeatScript {
				beats.Add(1)
			}
			return "place 0 -1 0 another 0", nil
		}, "shop")
		p := newUser(t, b).lasting(time.Minute).place("shop:1")
		b.sub.OnMessage(channelOf("shop", b.s.process), fmt.Sprintf("p %v 100", attemptBehind(p).Wire.id))
		for n, wait := range []time.Duration{99 * time.Millisecond, 2 * time.Millisecond} {
			time.Sleep(wait)
			synctest.Wait()
			require.EqualValues(t, n, beats.Load())
		}
	})
}

// An enter that was sent twice may have had a place before, and the lock, until that expired. A message of that grant may come when the second
// place has been answered: it is not believed, but the server is asked.
func TestAMessageOfThePlaceBeforeIsNoGrant(t *testing.T) { // rule R10
	t.Parallel()
	s := redistest.Start(t)
	held := newUser(t, open(t, s.Addr)).lasting(time.Minute).lease("shop:1")
	for _, twice := range []bool{true, false} {
		b := open(t, s.Addr, WithSystem("shop"))
		if twice {
			lateEnter(b)
		}
		u := newUser(t, b).lasting(time.Minute)
		p := u.place("shop:1")
		b.sub.OnMessage(channelOf("shop", b.s.process),
			fmt.Sprintf("g x %v %s %d 1000 1 shop:1", attemptBehind(p).Wire.id, instanceName(u.name), time.Now().UnixNano()))
		if twice {
			time.Sleep(10 * time.Millisecond)
			require.Empty(t, p.Granted())
			require.NoError(t, p.Leave(t.Context()))
		} else {
			require.Len(t, p.Granted(), 1, "else this shows nothing")
			(<-p.Granted()).Abandon()
		}
	}
	release(t, held)
}

func TestHalfOpenSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	b := open(t, p.Addr)
	counted := &listenCount{}
	swapTransport(b, func(tr conn.Transport) conn.Transport { counted.Transport = tr; return counted })
	release(t, newUser(t, b).lease(key(t))) // brings the TTL, and with it the watchdog's interval
	require.Eventually(t, func() bool { return counted.subscribed.Load() > 0 }, patience, time.Millisecond)
	time.Sleep(distributed.HeartbeatInterval(testTTL)) // an interval that began before the TTL was known may be longer
	before := counted.broken.Load()                    // a busy machine may have answered late
	p.SetHalfOpen(true)
	inTime(t, "half-open subscription noticed", 2*distributed.HeartbeatInterval(testTTL), func() {
		require.Eventually(t, func() bool { return counted.broken.Load() > before }, patience, time.Millisecond)
	})
	before = counted.subscribed.Load()
	p.SetHalfOpen(false)
	require.Eventually(t, func() bool { return counted.subscribed.Load() > before }, patience, time.Millisecond)
}

// listenCount is a transport, and what listens to it. It counts what happens to the subscription.
type listenCount struct {
	conn.Transport
	conn.ChannelListener
	subscribed, broken atomic.Int32
}

func (c *listenCount) ListenTo(ctx context.Context, channels *conn.Channels, interval func() time.Duration, l conn.ChannelListener) {
	c.ChannelListener = l
	c.Transport.ListenTo(ctx, channels, interval, c)
}

func (c *listenCount) OnSubscribe(channel string) {
	c.subscribed.Add(1)
	c.ChannelListener.OnSubscribe(channel)
}

func (c *listenCount) OnDisconnect(err error) {
	c.broken.Add(1)
	c.ChannelListener.OnDisconnect(err)
}
