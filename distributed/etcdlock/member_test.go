package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
)

// A learner among the servers serves nothing: what reaches it goes on to a member that has a vote, and nobody takes that for an outage.
func TestALearnerAmongTheServers(t *testing.T) {
	t.Parallel()
	voter := etcdtest.Start(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{voter.Addr}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	before, err := client.MemberList(t.Context())
	require.NoError(t, err)
	learner := etcdtest.StartLearner(t, func(peer string) (string, error) {
		_, err := client.MemberAddAsLearner(t.Context(), []string{peer})
		return before.Members[0].PeerURLs[0], err
	})
	b := open(t, learner.Addr+","+voter.Addr, newPrefix())
	var failures atomic.Int64
	defer b.Observe(func(e distributed.Exchange) {
		if errors.Is(e.Err, distributed.ErrRefused) {
			failures.Add(1)
		}
	})()
	for i := range 50 {
		release(t, asker(t, b, fmt.Sprint(i)).Lease("a", lasting(long)))
	}
	require.Zero(t, failures.Load(), "reported")
	require.NoError(t, b.Ping(t.Context()))

	alone := open(t, learner.Addr, newPrefix())
	_, _, err = alone.Enter(t.Context(), distributed.Request{Key: "k", Instance: "a", TTL: long})
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "learners")
}

// A member that is far behind, or that was just started, says so and does nothing: what it was asked goes on to another one.
func TestAMemberThatIsBehind(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]error{"far behind": rpctypes.ErrGRPCRequestTooManyRequests, "just started": rpctypes.ErrGRPCNotCapable} {
		t.Run(name, func(t *testing.T) {
			var asked, refusals atomic.Int64 // as if every second member were
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcdtest.Shared(t).Addr}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
				grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					if strings.HasSuffix(method, "/Txn") && asked.Add(1)%2 == 1 {
						refusals.Add(1)
						return says
					}
					return call(ctx, method, req, reply, cc, opts...)
				}),
			}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			b, err := New(client, WithPrefix(newPrefix()))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			var failures atomic.Int64
			defer b.Observe(func(e distributed.Exchange) {
				if e.Err != nil {
					failures.Add(1)
				}
			})()
			for i := range 20 {
				release(t, asker(t, b, fmt.Sprint(i)).Lease("a", lasting(long)))
			}
			require.Positive(t, refusals.Load())
			require.Zero(t, failures.Load(), "reported")
		})
	}
}
