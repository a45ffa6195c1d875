package redislock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// losing loses requests of heartbeats, as a connection that hangs does.
type losing struct {
	conn.Transport
	beats atomic.Int32 // how many are to be lost
}

func (l *losing) Do(ctx context.Context, calls ...*conn.Call) {
	if calls[0].Script != heartbeatScript || l.beats.Add(-1) < 0 {
		l.Transport.Do(ctx, calls...)
		return
	}
	until, _ := ctx.Deadline()
	time.Sleep(time.Until(until))
	for _, c := range calls {
		c.Err = context.DeadlineExceeded
	}
}

// TestOneLostHeartbeatCostsNoPlace, where PUBLISH does not tell who listens: the next one was once sent only when the place
// had been given up.
func TestOneLostHeartbeatCostsNoPlace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const ttl = 3 * time.Second
	var lossy losing
	backend := func() *Backend {
		b := open(t, s.Addr)
		require.NoError(t, b.Ping(t.Context()))
		b.s.single.Store(false)
		return b
	}
	holder, first, second := backend(), backend(), backend()
	swapTransport(first, func(tr conn.Transport) conn.Transport { lossy.Transport = tr; return &lossy })
	l := newUser(t, holder).lasting(ttl).lease(key(t))
	p1 := newUser(t, first).lasting(ttl).place(key(t))
	p2 := newUser(t, second).lasting(ttl).place(key(t))
	lossy.beats.Store(1)
	time.Sleep(ttl/3 + 130*time.Millisecond) // silent for longer than a waiter may be
	release(t, l)
	release(t, granted(t, p1))
	release(t, granted(t, p2))
}
