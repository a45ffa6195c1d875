package redislock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// TestSilentServerKeepsTheOrder: after a while without the server all waiters look dead. The first that asked once had all
// before it removed.
func TestSilentServerKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for kind, single := range map[string]bool{"PUBLISH counts": true, "as in a cluster": false} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--enable-debug-command", "yes")
			backend := func() *Backend {
				b := open(t, s.Addr)
				require.NoError(t, b.Ping(t.Context()))
				b.s.single.Store(single)
				return b
			}
			l := newUser(t, backend()).lease(key(t))
			var places []distributed.Place
			for range 8 {
				places = append(places, newUser(t, backend()).place(key(t)))
			}
			time.Sleep(testTTL / 2)
			_ = s.Client(func(o *redis.Options) { o.ReadTimeout = patience }).Do(t.Context(), "DEBUG", "SLEEP", (7 * testTTL / 2).Seconds()).Err()
			last := attemptBehind(places[7])
			last.Wire.node.sendBatch(t.Context(), []*attempt{last}) // the first after it
			_ = l.Release(context.Background())                     // perhaps lost
			for i, p := range places {
				select {
				case l, ok := <-p.Granted():
					require.True(t, ok, "place %d was lost", i)
					for _, later := range places[i+1:] {
						require.Empty(t, later.Granted(), "granted out of order")
					}
					release(t, l)
				case <-time.After(patience):
					t.Fatalf("place %d: nothing granted", i)
				}
			}
		})
	}
}

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
