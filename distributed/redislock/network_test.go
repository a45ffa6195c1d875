package redislock

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

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
