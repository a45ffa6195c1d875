package redislock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// punctual notes by how much an exchange exceeded its deadline.
type punctual struct {
	conn.Transport
	late atomic.Int64
}

func (p *punctual) Do(ctx context.Context, calls ...*conn.Call) {
	by, _ := ctx.Deadline()
	p.Transport.Do(ctx, calls...)
	for late := int64(time.Since(by)); ; {
		old := p.late.Load()
		if late <= old || p.late.CompareAndSwap(old, late) {
			return
		}
	}
}

// TestSmallPoolHoldsNobodyUp: an exchange that finds no connection waits for one past its deadline, so there must be one for
// all that can be under way, whatever the application's client has. The default of go-redis is 10 per processor.
func TestSmallPoolHoldsNobodyUp(t *testing.T) {
	testscope.Long(t, "takes 2 s")
	t.Parallel()
	s := redistest.Start(t)
	b := with(t, s.Client(func(o *redis.Options) { o.PoolSize = conn.MaxSlots }))
	exchanges := &punctual{}
	swapTransport(b, func(tr conn.Transport) conn.Transport { exchanges.Transport = tr; return exchanges })
	patient := newUser(t, b).lasting(conn.LongestTry * 6) // H is a second
	patient.lease(key(t))
	for range 4 * conn.MaxSlots { // whose heartbeats are due together now and then, and then need a connection of their own
		newUser(t, b).place(key(t)) // H is 100 ms
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 2*conn.LongestTry)
	defer cancel()
	var wg sync.WaitGroup
	for i := range conn.MaxSlots {
		wg.Go(func() { _, _, _ = patient.enter(ctx, fmt.Sprint(key(t), i)) })
	}
	wg.Wait()
	inTime(t, "past a deadline", time.Duration(exchanges.late.Load()), 0)
	s.Resume()
}

// go-redis' pool answered with its last error once as many dials had failed as it has places, and dialed once a second: a
// server that was back was not found before.
func TestAServerThatIsBackIsDialedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var away atomic.Bool
	away.Store(true)
	b := with(t, s.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if away.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}))
	for range 10 * conn.MaxSlots {
		require.ErrorIs(t, b.Echo(t.Context()), distributed.ErrUnreached)
	}
	away.Store(false)
	require.NoError(t, b.Echo(t.Context()))
}
