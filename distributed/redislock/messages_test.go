package redislock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

func TestHalfOpenSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	b := open(t, p.Addr)
	counted := &listenCount{}
	swapTransport(b, func(tr conn.Transport) conn.Transport { return listening{tr, counted} })
	release(t, newUser(t, b).lease(key(t))) // brings the TTL, and with it the watchdog's interval
	require.Eventually(t, func() bool { return counted.subscribed.Load() > 0 }, patience, time.Millisecond)
	time.Sleep(distributed.HeartbeatInterval(testTTL)) // an interval that began before the TTL was known may be longer
	before := counted.broken.Load()                    // a busy machine may have answered late
	p.SetHalfOpen(true)
	start := time.Now()
	require.Eventually(t, func() bool { return counted.broken.Load() > before }, patience, time.Millisecond)
	inTime(t, "half-open subscription noticed", time.Since(start), 2*distributed.HeartbeatInterval(testTTL))
	before = counted.subscribed.Load()
	p.SetHalfOpen(false)
	require.Eventually(t, func() bool { return counted.subscribed.Load() > before }, patience, time.Millisecond)
}

// listening counts what happens to the subscription.
type listening struct {
	conn.Transport
	count *listenCount
}

type listenCount struct{ subscribed, broken atomic.Int32 }

func (c listening) ListenTo(ctx context.Context, channels *conn.Channels, interval func() time.Duration, l conn.ChannelListener) {
	c.Transport.ListenTo(ctx, channels, interval, countedListener{l, c.count})
}

type countedListener struct {
	conn.ChannelListener
	count *listenCount
}

func (c countedListener) OnSubscribe(channel string) {
	c.count.subscribed.Add(1)
	c.ChannelListener.OnSubscribe(channel)
}
func (c countedListener) OnDisconnect(err error) {
	c.count.broken.Add(1)
	c.ChannelListener.OnDisconnect(err)
}
