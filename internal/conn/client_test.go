package conn

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// There is a connection for each exchange that may be under way, for one that finds none waits past its deadline; or as many as the
// caller's limit leaves, of which callers do not take the last two.
func TestConnectionsAreEnoughOrTheCallersLimit(t *testing.T) {
	const need = MaxSlots + 20
	for _, test := range []struct{ limit, replicas, pool, callers, acked int }{
		{0, 0, need, MaxSlots, 0}, {100, 0, 100, MaxSlots, 0}, {5, 0, 5, 3, 0}, {1, 0, fewestConns, 1, 0},
		{0, 1, need + ackSlots, MaxSlots, ackSlots}, {100, 1, 100, MaxSlots, ackSlots}, {5, 1, 5, 2, 1}, {1, 1, fewestConns + 1, 1, 1},
	} {
		c := Config{Pipelines: 20, Acks: Acks{test.replicas, time.Second}}
		one := Single(&redis.Options{PoolSize: 1, MaxActiveConns: test.limit}, c).(*goRedis)
		several := cluster(&redis.ClusterOptions{Addrs: []string{"a:1"}, PoolSize: 1, MaxActiveConns: test.limit}, c)
		o, of := one.client.(*redis.Client).Options(), several.client.(*redis.ClusterClient).Options()
		require.Equal(t, []int{test.pool, test.pool, 0}, []int{o.PoolSize, o.MaxConcurrentDials, o.MaxActiveConns})
		require.Equal(t, []int{test.pool, test.pool, 0}, []int{of.PoolSize, of.MaxConcurrentDials, of.MaxActiveConns})
		for _, g := range []*goRedis{one, several} {
			require.Equal(t, room{test.callers, test.acked, test.pool < need}, g.room)
			require.NoError(t, g.client.Close())
		}
	}
}

// printer is a logger of go-redis.
type printer struct{ *log.Logger }

func (p printer) Printf(_ context.Context, format string, args ...any) {
	_ = p.Output(3, fmt.Sprintf(format, args...))
}

// listens counts the failures of a subscription, which hears nothing else.
type listens struct {
	ChannelListener
	failures sync.WaitGroup
	left     int
}

func (l *listens) OnDisconnect(error) {
	if l.left > 0 {
		l.left--
		l.failures.Done()
	}
}

// An outage printed a line for each dial to standard error, past the logger that the application had chosen.
func TestDialsOfOursPrintNothing(t *testing.T) {
	var out bytes.Buffer
	redis.SetLogger(printer{log.New(&out, "", 0)})
	t.Cleanup(func() { redis.SetLogger(printer{log.New(os.Stderr, "redis: ", log.LstdFlags|log.Lshortfile)}) })

	o := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}
	theirs := redis.NewClient(o)
	defer theirs.Close()
	require.Error(t, theirs.Ping(context.Background()).Err())
	require.Contains(t, out.String(), "failed to dial", "the application's own client prints")

	out.Reset()
	tr := Single(o, Config{PrefixOf: func(string) string { return "test:" }})
	ctx, cancel := context.WithCancel(t.Context())
	l := &listens{left: 3}
	l.failures.Add(l.left)
	var listening sync.WaitGroup
	listening.Go(func() { tr.ListenTo(ctx, NewChannels("test:1"), func() time.Duration { return time.Second }, l) })
	for range 100 {
		_, err := tr.Ping(ctx, "")
		require.Error(t, err)
		tr.Do(ctx, NewCall(anyScript, []string{"k"}), NewCall(anyScript, []string{"k"}))
	}
	l.failures.Wait()
	cancel()
	listening.Wait()
	require.NoError(t, tr.Close())
	require.Empty(t, out.String())
}

// TestTheLaterQuestionCounts: a dial that asked the sentinels before a failover ends after one that asked since. It may not lead back to the
// old primary.
func TestTheLaterQuestionCounts(t *testing.T) {
	t.Parallel()
	listen := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().String()
	}
	before, since := listen(), listen()
	asked, goOn := make(chan struct{}), make(chan struct{})
	p := newPrimary(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == before {
			close(asked)
			<-goOn
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	late := make(chan error)
	go func() {
		_, err := p.connect(t.Context(), "tcp", before)
		late <- err
	}()
	<-asked
	conn, err := p.connect(t.Context(), "tcp", since)
	require.NoError(t, err)
	close(goOn)
	require.ErrorIs(t, <-late, errMoved)
	require.False(t, conn.(*followed).moved.Load())
	require.NoError(t, conn.Close())
}
