package grpcguard_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

// locksOf are those of a call with a key.
func locksOf(key string) []wllock.Resource {
	return []wllock.Resource{{Name: "product", Key: key}, {Name: "account", Key: "1"}}
}

// keys and allKeys are the two times at which the key, or the several keys, of a stream are known.
var (
	byMetadata   = grpcguard.Metadata("product-id")
	keys         = map[string]grpcguard.KeyFunc{"metadata": byMetadata, "first message": byPayload}
	allByPayload = func(ctx context.Context, method string, req any) ([]wllock.Resource, error) {
		return grpcguard.KeysFrom(func(r payloader) []wllock.Resource { return locksOf(string(r.GetPayload().GetBody())) })(ctx, method, req)
	}
	allByMetadata = func(ctx context.Context, method string, req any) ([]wllock.Resource, error) {
		key, err := byMetadata(ctx, method, req)
		return locksOf(key), err
	}
	allKeys = map[string]grpcguard.KeysFunc{"metadata": allByMetadata, "first message": allByPayload}
)

func withKeys(t *testing.T, test func(t *testing.T, key grpcguard.KeyFunc)) {
	for name, key := range keys {
		t.Run(name, func(t *testing.T) { test(t, key) })
	}
}

func TestServerBidiTakesTheLockWithTheFirstMessage(t *testing.T) {
	l := wllocktest.New(t)
	c := start(t, &service{both: func(s grpc.ServerStream) error {
		_, ok := wllock.HeldFrom(s.Context())
		assert.False(t, ok)
		for range 2 {
			if err := s.RecvMsg(&pb.StreamingOutputCallRequest{}); !assert.NoError(t, err) {
				return err
			}
			_, ok = wllock.HeldFrom(s.Context())
			assert.True(t, ok)
		}
		return nil
	}}, streamServer(l, byPayload))
	s := opened(t, c)
	require.NoError(t, s.Send(request))
	_, err := s.Recv()
	require.ErrorIs(t, err, io.EOF)
	isFree(t, l)
}

// A handler that ignores the refusal of its first message gets no further message, and its caller gets the refusal.
func TestServerStreamCannotIgnoreARefusal(t *testing.T) {
	l := taken(t)
	c := start(t, &service{both: func(s grpc.ServerStream) error {
		for range 2 {
			heldRow.check(t, s.RecvMsg(&pb.StreamingOutputCallRequest{}), nil)
		}
		return nil
	}}, streamServer(l, byPayload, wllock.NoWait()))
	s := opened(t, c)
	_, err := s.Recv()
	heldRow.check(t, err, s.Trailer())
}

// A panic on a goroutine of the interceptor's would end the process.
func TestPanicOfTheBackendReachesTheStreamsGoroutine(t *testing.T) {
	l := testlocker.On(t, entering{memlock.New(), func(context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
		panic("backend")
	}})
	guard := grpcguard.StreamServerInterceptorAll(l, allByPayload)
	require.PanicsWithValue(t, "backend", func() {
		_ = guard(nil, newReceiver(t, true), &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error {
			return s.RecvMsg(&pb.StreamingOutputCallRequest{})
		})
	})
}
