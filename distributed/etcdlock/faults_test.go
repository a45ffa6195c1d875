package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// cutOff returns two backends on the shared server, and what cuts the first of them off.
func cutOff(t *testing.T) (first, second *Backend, proxy *testproc.Proxy) {
	t.Helper()
	server := etcdtest.Shared(t)
	proxy, prefix := testproc.NewProxy(t, server.Addr), newPrefix()
	return open(t, proxy.Addr, prefix), open(t, server.Addr, prefix), proxy
}

// A holder that is cut off knows that its lease has ended before the next one is let in.
func TestExpiryWhileHeld(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	b, other, proxy := cutOff(t)
	testlocker.ExpiryWhileHeld(t, asker(t, b, "k"), asker(t, other, "k"), proxy.Stall)
}

// count returns the number of keys with a prefix.
func count(t *testing.T, c *clientv3.Client, prefix string) int64 {
	t.Helper()
	got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return got.Count
}

// The etcd leases and their keys outlive a restart.
func TestServerRestarts(t *testing.T) {
	testscope.Long(t, "takes a server away, and brings it back")
	private := etcdtest.Start(t)
	testlocker.Restarts(t, asker(t, open(t, private.Addr, newPrefix()), "k"), private)
}

// Were an event to get lost, a waiter would look every H.
func TestAnEventThatNeverComes(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("a")
	p := ask.Place("b")
	b.watches.remove(claimOf(p).watching[0]) // so nobody hears of it
	release(t, l)
	release(t, granted(t, p))
}

// A stream of watches that has fallen silent, while other requests are answered, is opened anew long before H.
func TestASilentStreamIsReplaced(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	server, prefix := etcdtest.Shared(t), newPrefix()
	var mute atomic.Bool
	var streams atomic.Int64
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			next grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := next(ctx, d, cc, method, opts...)
			if err == nil && strings.HasSuffix(method, "/Watch") && streams.Add(1) == 1 {
				s = mutable{s, mute.Load}
			}
			return s, err
		}),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	b, err := New(c, WithPrefix(prefix))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	other := open(t, server.Addr, prefix)
	l := asker(t, other, "k").Lease("holder", lasting(long))
	p := asker(t, b, "k").Place("waiter", lasting(long))
	mute.Store(true)
	release(t, l)
	start := time.Now()
	next := granted(t, p)
	require.NotNil(t, next)
	require.Less(t, time.Since(start), distributed.HeartbeatInterval(long)*3/4, "by a look without an event")
	require.Greater(t, streams.Load(), int64(1))
	release(t, next)
}

// mutable is a stream that loses what it receives while it is mute.
type mutable struct {
	grpc.ClientStream
	mute func() bool
}

func (m mutable) RecvMsg(msg any) error {
	for {
		if err := m.ClientStream.RecvMsg(msg); err != nil || !m.mute() {
			return err
		}
	}
}

// The revision at which a watch is to go on was compacted while the connection was away: the waiter looks.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy, prefix := testproc.NewProxy(t, server.Addr), newPrefix()
	b, other := open(t, proxy.Addr, prefix), open(t, server.Addr, prefix)
	l := asker(t, other, "k").Lease("holder", lasting(long))
	held := asker(t, b, "held").Lease("a", lasting(long))
	p := asker(t, b, "k").Place("waiter", lasting(long))
	require.Eventually(t, func() bool { return len(b.watches.ids()) == 2 }, patience, time.Millisecond)
	proxy.Forward("127.0.0.1:1") // nobody is there
	release(t, l)
	contender := asker(t, other, "held").Place("b", lasting(long))
	c := plainClient(t, server.Addr)
	got, err := c.Put(t.Context(), "/other", "x")
	require.NoError(t, err)
	_, err = c.Compact(t.Context(), got.Header.Revision)
	require.NoError(t, err)
	proxy.Forward(server.Addr)
	next := granted(t, p)
	require.NotNil(t, next)
	require.Eventually(t, held.Contended, patience, time.Millisecond)
	release(t, next)
	release(t, held)
	release(t, granted(t, contender))
}

// Load on the server, with leases of many processes: those that are kept alive live, one that is cut off ends first here and then
// there.
func TestExpiryUnderLoad(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	t.Parallel()
	server := etcdtest.Start(t)
	prefix := newPrefix()
	proxy := testproc.NewProxy(t, server.Addr)
	cut := open(t, proxy.Addr, prefix)
	const keys = 8
	var dead, alive []distributed.Lease
	var places []distributed.Place
	other := open(t, server.Addr, prefix)
	for i := range keys {
		dead = append(dead, asker(t, cut, fmt.Sprint("dead", i)).Lease("a"))
		places = append(places, asker(t, other, fmt.Sprint("dead", i)).Place("b", lasting(long)))
		alive = append(alive, asker(t, open(t, server.Addr, prefix), fmt.Sprint("alive", i)).Lease("c"))
	}
	stop := loadWith(t, server.Addr, 4)
	for _, l := range dead {
		claimed(t, l)
	}
	proxy.Stall(true)
	for i, p := range places {
		next := granted(t, p)
		require.NotNil(t, next)
		require.True(t, distributed.Over(time.Now(), dead[i].Until()), "let in before the lease of the one before had expired")
	}
	stop()
	for _, l := range alive {
		require.Positive(t, distributed.Left(time.Now(), l.Until()))
		release(t, l)
	}
	proxy.Stall(false)
}

// loadWith writes to the server until stop is called.
func loadWith(t *testing.T, addr string, writers int) (stop func()) {
	t.Helper()
	c := plainClient(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for range writers {
		go func() {
			for ctx.Err() == nil {
				_, _ = c.Put(ctx, "/load", "x")
			}
			ended <- struct{}{}
		}()
	}
	return func() {
		cancel()
		for range writers {
			<-ended
		}
	}
}
