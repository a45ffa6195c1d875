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
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
)

// A learner among the servers serves nothing: what reaches it goes on to a member that has a vote, and nobody takes that for an outage.
func TestALearnerAmongTheServers(t *testing.T) {
	t.Parallel()
	voter := etcdtest.Start(t)
	client := plainClient(t, voter.Addr)
	before, err := client.MemberList(t.Context())
	require.NoError(t, err)
	learner := etcdtest.StartLearner(t, func(peer string) (string, error) {
		_, err := client.MemberAddAsLearner(t.Context(), []string{peer})
		return before.Members[0].PeerURLs[0], err
	})
	b := open(t, learner.Addr+","+voter.Addr, newPrefix())
	failures := testlocker.Counted(t, b, func(e distributed.Exchange) bool { return errors.Is(e.Err, distributed.ErrRefused) })
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
			b := through(t, etcdtest.Shared(t).Addr, newPrefix(), grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					if strings.HasSuffix(method, "/Txn") && asked.Add(1)%2 == 1 {
						refusals.Add(1)
						return says
					}
					return call(ctx, method, req, reply, cc, opts...)
				}))
			failures := testlocker.Counted(t, b, func(e distributed.Exchange) bool { return e.Err != nil })
			for i := range 20 {
				release(t, asker(t, b, fmt.Sprint(i)).Lease("a", lasting(long)))
			}
			require.Positive(t, refusals.Load())
			require.Zero(t, failures.Load(), "reported")
		})
	}
}
