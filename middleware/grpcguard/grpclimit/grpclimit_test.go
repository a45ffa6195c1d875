package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/middleware/grpcguard/grpclimit"
	"github.com/wllock/wllock/middleware/grpcguard/internal/rpcstatus"
	"github.com/wllock/wllock/middleware/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, nil
}

func (service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return s.Send(&pb.StreamingOutputCallResponse{})
}

var perCaller = []grpclimit.Rule{{
	Policy: ratelimit.Policy{Name: "caller", Quota: 1, Window: time.Minute}, Of: grpcguard.Metadata("caller-id"),
}}

// calls makes the two kinds of call, both from one caller.
var calls = map[string]func(ctx context.Context, c pb.TestServiceClient) (trailer metadata.MD, err error){
	"unary": func(ctx context.Context, c pb.TestServiceClient) (trailer metadata.MD, err error) {
		_, err = c.UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Trailer(&trailer))
		return trailer, err
	},
	"stream": func(ctx context.Context, c pb.TestServiceClient) (metadata.MD, error) {
		s, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
		if err != nil {
			return nil, err
		}
		if _, err = s.Recv(); err == nil {
			_, _ = s.Recv() // to the end
		}
		return s.Trailer(), err
	},
}

func start(t testing.TB, limiter ratelimit.Limiter, opts ...grpclimit.Option) pb.TestServiceClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(
		grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, perCaller, opts...)),
		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, perCaller, opts...)))
	pb.RegisterTestServiceServer(server, service{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, server.Serve(listener))
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return pb.NewTestServiceClient(conn)
}

func from(t testing.TB, caller string, more ...string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), append(more, "caller-id", caller)...)
}

// isRefused checks code, reason and retry delay.
func isRefused(t testing.TB, err error, trailer metadata.MD, code codes.Code, reason string, atLeast time.Duration) {
	t.Helper()
	s := status.Convert(err)
	require.Equal(t, code, s.Code(), s.Message())
	info := s.Details()[0].(*errdetails.ErrorInfo)
	require.Equal(t, reason, info.GetReason())
	require.Equal(t, "wllock", info.GetDomain())
	ms, err := strconv.Atoi(trailer.Get("grpc-retry-pushback-ms")[0])
	require.NoError(t, err)
	if atLeast < 0 {
		require.Negative(t, ms)
		return
	}
	require.GreaterOrEqual(t, s.Details()[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration(), atLeast)
	require.GreaterOrEqual(t, time.Duration(ms)*time.Millisecond, atLeast)
}

func TestLimits(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			c := start(t, ratelimit.NewLocal())
			_, err := call(from(t, "1"), c)
			require.NoError(t, err)
			trailer, err := call(from(t, "1"), c)
			isRefused(t, err, trailer, codes.ResourceExhausted, "RATE_LIMITED", 50*time.Second)
			_, err = call(from(t, "2", "idempotency-key", "x"), c)
			require.NoError(t, err)
			_, err = call(from(t, "2", "idempotency-key", "x"), c)
			require.NoError(t, err, "a retry is not charged twice")
			trailer, err = call(from(t, ""), c)
			isRefused(t, err, trailer, codes.InvalidArgument, "LOCK_INVALID_KEY", -1)
			trailer, err = call(t.Context(), c)
			isRefused(t, err, trailer, codes.InvalidArgument, "LOCK_INVALID_KEY", -1)
		})
	}
}

func TestRequestID(t *testing.T) {
	c := start(t, ratelimit.NewLocal(), grpclimit.WithRequestID(func(context.Context) string { return "same" }))
	for range 2 {
		_, err := calls["unary"](from(t, "1"), c)
		require.NoError(t, err)
	}
	_, err := calls["unary"](from(t, "1"), c)
	require.Error(t, err)
}

// failing is a limiter whose answers are an error.
type failing struct{ error }

func (f failing) Take(context.Context, ratelimit.Policy, string, string) (ratelimit.Result, error) {
	return ratelimit.Result{}, f.error
}

var away = failing{errors.New("away")}

func TestLimiterAway(t *testing.T) {
	_, err := calls["unary"](from(t, "1"), start(t, away))
	require.NoError(t, err)
	trailer, err := calls["unary"](from(t, "1"), start(t, away, grpclimit.WithFailClosed()))
	isRefused(t, err, trailer, codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", time.Millisecond)
}

// A limiter that refuses for good admits nobody: without rights nothing would be limited.
func TestLimiterRefuses(t *testing.T) {
	c := start(t, failing{fmt.Errorf("redis: %w: NOPERM", ratelimit.ErrRefused)})
	for _, call := range calls {
		trailer, err := call(from(t, "1"), c)
		isRefused(t, err, trailer, codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", time.Millisecond)
		require.NotContains(t, err.Error(), "NOPERM")
	}
}

// A call that ends while the limiter is asked does not mean that the limiter is unreachable: no retry is suggested.
func TestCallEndsWhileTheLimiterIsAway(t *testing.T) {
	limits := grpclimit.UnaryServerInterceptor(away, perCaller, grpclimit.WithFailClosed())
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for code, ctx := range map[codes.Code]context.Context{codes.Canceled: cancelled, codes.DeadlineExceeded: late} {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("caller-id", "1"))
		_, err := limits(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			t.Error("admitted")
			return nil, nil
		})
		require.Equal(t, code, status.Code(err))
		refusal, ok := errors.AsType[*rpcstatus.Refusal](err)
		require.True(t, ok)
		require.Empty(t, refusal.Trailer())
	}
}

func TestMistakesPanic(t *testing.T) {
	require.Panics(t, func() { grpclimit.UnaryServerInterceptor(nil, perCaller) })
	require.Panics(t, func() { grpclimit.StreamServerInterceptor(ratelimit.NewLocal(), []grpclimit.Rule{{}}) })
	require.PanicsWithValue(t, "grpclimit: no rules: nothing would be limited", func() { grpclimit.UnaryServerInterceptor(ratelimit.NewLocal(), nil) })
	require.PanicsWithValue(t, "grpclimit: an option of an interceptor is nil", func() { grpclimit.UnaryServerInterceptor(ratelimit.NewLocal(), perCaller, nil) })
	require.PanicsWithValue(t, "grpclimit: WithRequestID(nil): want a function", func() { grpclimit.WithRequestID(nil) })
	require.PanicsWithValue(t, "grpclimit: policy caller: Of is nil: want a function", func() {
		grpclimit.StreamServerInterceptor(ratelimit.NewLocal(), []grpclimit.Rule{{Policy: perCaller[0].Policy}})
	})
	// A call with an idempotency-key that the first had charged would pass the second as its own retry.
	require.PanicsWithValue(t, "grpclimit: two rules have a policy caller: want a name for each", func() {
		grpclimit.UnaryServerInterceptor(ratelimit.NewLocal(), []grpclimit.Rule{perCaller[0], perCaller[0]})
	})
}
