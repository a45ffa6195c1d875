package grpcguard_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/middleware/grpcguard"
)

func TestEndOfStreamWaitsForTheBackendOnlyWithSyncRelease(t *testing.T) {
	for name, opts := range map[string][]wllock.CallOption{"default": nil, "SyncRelease": {wllock.SyncRelease()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, answer := memlock.New(), make(chan struct{})
				l := testlocker.On(t, entering{b, func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
					l, p, err := b.Enter(ctx, r)
					return wrap.Releasing(l, func(ctx context.Context) error {
						<-answer
						return l.Release(ctx)
					}), p, err
				}})
				guard := grpcguard.StreamServerInterceptor(l, "product", byPayload, grpcguard.WithCallOptions(opts...))
				ended := false
				go func() {
					assert.NoError(t, guard(nil, newReceiver(t, true), &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error {
						return s.RecvMsg(&pb.StreamingOutputCallRequest{})
					}))
					ended = true
				}()
				synctest.Wait()
				assert.Equal(t, opts == nil, ended)
				require.Zero(t, l.Stats().Total.Held)
				close(answer)
				synctest.Wait()
				require.True(t, ended)
			})
		})
	}
}
