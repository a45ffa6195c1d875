package redislock

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// hostile is a network that delivers calls a second time, later; loses answers; and delays both ways.
type hostile struct {
	conn.Transport
	wg   *sync.WaitGroup
	rand *rand.Rand // may be used by several goroutines
}

func (h hostile) upTo(d time.Duration) time.Duration { return time.Duration(h.rand.Int64N(int64(d))) }

func (h hostile) Do(ctx context.Context, calls ...*conn.Call) {
	for _, c := range calls {
		if h.rand.IntN(8) == 0 {
			again := &conn.Call{Script: c.Script, Args: c.Args}
			d := h.upTo(400 * time.Millisecond)
			h.wg.Go(func() {
				time.Sleep(d)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				h.Transport.Do(ctx, again)
			})
		}
	}
	if h.rand.IntN(10) == 0 {
		time.Sleep(h.upTo(40 * time.Millisecond))
	}
	h.Transport.Do(ctx, calls...)
	if h.rand.IntN(10) == 0 {
		time.Sleep(h.upTo(40 * time.Millisecond))
	}
	if h.rand.IntN(12) == 0 {
		for _, c := range calls {
			c.Reply, c.Err = "", context.DeadlineExceeded
		}
	}
}

func (h hostile) ListenTo(ctx context.Context, channels *conn.Channels, interval func() time.Duration, l conn.ChannelListener) {
	h.Transport.ListenTo(ctx, channels, interval, hostileListener{l, h})
}

// hostileListener loses, doubles and delays messages.
type hostileListener struct {
	conn.ChannelListener
	net hostile
}

func (h hostileListener) OnMessage(channel, text string) {
	for range h.net.rand.IntN(3) {
		d := h.net.upTo(100 * time.Millisecond)
		h.net.wg.Go(func() { time.Sleep(d); h.ChannelListener.OnMessage(channel, text) })
	}
	if h.net.rand.IntN(3) > 0 {
		h.ChannelListener.OnMessage(channel, text)
	}
}

// TestHostileNetwork is a storm of six processes, five of them over a hostile network. It leaves nothing behind.
func TestHostileNetwork(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	s := redistest.Start(t)
	h := hostile{wg: new(sync.WaitGroup), rand: testseed.Rand(t)}
	storm := &testlocker.Storm{TTL: testTTL, Break: func(context.Context, *rand.Rand) { time.Sleep(time.Second) }}
	for i := range 6 {
		b := open(t, s.Addr)
		if i > 0 {
			swapTransport(b, func(tr conn.Transport) conn.Transport { return hostile{tr, h.wg, h.rand} })
		}
		storm.Backends = append(storm.Backends, b)
	}
	storm.Run(t)
	h.wg.Wait()
	require.Eventually(t, func() bool {
		return s.Do("GET", testlocker.StormKey) == nil && queueLength(s, testlocker.StormKey) == 0
	}, patience, 10*time.Millisecond)
}
