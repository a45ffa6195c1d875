package shopclient_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes/service/shopclient"
	"github.com/wllock/wllock/example/recipes/service/shoppb"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop counts the tries of its orders, before and after they have the lock.
type shop struct {
	shoppb.UnimplementedShopServer
	tries, served atomic.Int32
	before        func(try int32)           // each try
	during        func(ctx context.Context) // each order
}

func (s *shop) Order(ctx context.Context, _ *shoppb.OrderRequest) (*shoppb.OrderResponse, error) {
	s.served.Add(1)
	if s.during != nil {
		s.during(ctx)
	}
	return &shoppb.OrderResponse{}, nil
}

// call starts the shop behind a guard, and sends one order.
func (s *shop) call(t *testing.T, l *wllock.Locker) error {
	count := func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if s.before != nil {
			s.before(s.tries.Add(1))
		}
		return next(ctx, r)
	}
	key := grpcguard.KeyFrom(func(r *shoppb.OrderRequest) string { return r.GetProductId() })
	return order(t, s, count, grpcguard.UnaryServerInterceptor(l, "product", key, grpcguard.WithCallOptions(wllock.NoWait())))
}

// order serves a shop, and sends it one order.
func order(t *testing.T, s shoppb.ShopServer, guards ...grpc.UnaryServerInterceptor) error {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guards...))
	shoppb.RegisterShopServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	conn, err := shopclient.Dial(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	_, err = shoppb.NewShopClient(conn).Order(t.Context(), &shoppb.OrderRequest{ProductId: "1000"})
	return err
}

// A refused order is tried again, and succeeds when the lock is free.
func TestRefusedOrderIsTriedAgain(t *testing.T) {
	l := wllocktest.New(t)
	release := wllocktest.Hold(t, l, "product", "1000")
	s := &shop{before: func(try int32) {
		if try == 3 {
			release()
		}
	}}
	require.NoError(t, s.call(t, l))
	require.EqualValues(t, 3, s.tries.Load())
	require.EqualValues(t, 1, s.served.Load())
}

func TestTriesEnd(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", "1000")
	s := &shop{before: func(int32) {}}
	require.Equal(t, codes.Aborted, status.Code(s.call(t, l)))
	require.EqualValues(t, 4, s.tries.Load())
}

// An order whose lock was lost may have been carried out: the pushback of -1 forbids another try.
func TestLostOrderIsNotTriedAgain(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
	s := &shop{before: func(int32) {}, during: func(ctx context.Context) {
		faults.Lose("product", "1000")
		<-ctx.Done()
	}}
	require.Equal(t, codes.Aborted, status.Code(s.call(t, l)))
	require.EqualValues(t, 1, s.tries.Load())
	require.EqualValues(t, 1, s.served.Load())
}

// The pushback replaces the backoff, which would be at most 0.1 s.
func TestClientWaitsForAsLongAsTheServerSays(t *testing.T) {
	begin := time.Now()
	require.NoError(t, order(t, &pushing{}))
	require.GreaterOrEqual(t, time.Since(begin), 500*time.Millisecond)
}

type pushing struct {
	shoppb.UnimplementedShopServer
	tried bool // one call after the other
}

func (s *pushing) Order(ctx context.Context, _ *shoppb.OrderRequest) (*shoppb.OrderResponse, error) {
	if s.tried {
		return &shoppb.OrderResponse{}, nil
	}
	s.tried = true
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "500"))
	return nil, status.Error(codes.ResourceExhausted, "full")
}
