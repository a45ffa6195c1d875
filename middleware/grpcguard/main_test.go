package grpcguard_test

import (
	"context"
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
	"google.golang.org/protobuf/proto"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is the key in these tests: no response may contain it.
const secret = "s3cret-key"

// byPayload takes the key from any request with a payload.
func byPayload(ctx context.Context, method string, req any) (string, error) {
	return grpcguard.KeyFrom(func(r payloader) string { return string(r.GetPayload().GetBody()) })(ctx, method, req)
}

// payloader is a message of the test service that has a payload.
type payloader interface {
	GetPayload() *pb.Payload
	proto.Message
}

// service is the test service, made of functions. A test sets those it calls.
type service struct {
	pb.UnimplementedTestServiceServer
	unary func(ctx context.Context) error
	out   func(s grpc.ServerStream) error // one request, many responses
	in    func(s grpc.ServerStream) error // many requests, one response
	both  func(s grpc.ServerStream) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Username: "done"}, s.unary(ctx)
}

func (s *service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return s.out(stream)
}

func (s *service) StreamingInputCall(stream grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	return s.in(stream)
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	return s.both(stream)
}

// start runs the service on loopback and returns a client of it.
func start(t testing.TB, s *service, server []grpc.ServerOption, client ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	c, _ := startConn(t, s, server, client...)
	return c
}

func startConn(t testing.TB, s *service, server []grpc.ServerOption, client ...grpc.DialOption) (pb.TestServiceClient, *grpc.ClientConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer(append(server, grpc.WaitForHandlers(true))...)
	pb.RegisterTestServiceServer(srv, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(listener); err != grpc.ErrServerStopped { // before it has begun
			assert.NoError(t, err)
		}
	}()
	conn, err := grpc.NewClient(listener.Addr().String(),
		append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		<-done
	})
	return pb.NewTestServiceClient(conn), conn
}

// guardOf guards the unary calls of a server.
func guardOf(l *wllock.Locker, opts ...wllock.CallOption) grpc.UnaryServerInterceptor {
	return grpcguard.UnaryServerInterceptor(l, "product", byPayload, grpcguard.WithCallOptions(opts...))
}

func streamServer(l *wllock.Locker, key grpcguard.KeyFunc, opts ...wllock.CallOption) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.StreamInterceptor(
		grpcguard.StreamServerInterceptor(l, "product", key, grpcguard.WithCallOptions(opts...)))}
}

func streamClient(l *wllock.Locker, key grpcguard.KeyFunc, opts ...wllock.CallOption) grpc.DialOption {
	return grpc.WithStreamInterceptor(
		grpcguard.StreamClientInterceptor(l, "product", key, grpcguard.WithCallOptions(opts...)))
}

var (
	payload  = &pb.Payload{Body: []byte(secret)}
	simple   = &pb.SimpleRequest{Payload: payload}
	request  = &pb.StreamingOutputCallRequest{Payload: payload}
	response = &pb.StreamingOutputCallResponse{}
)

// drain reads a stream to its end.
func drain(s grpc.ClientStream) (n int, err error) {
	for ; ; n++ {
		if err := s.RecvMsg(&pb.StreamingOutputCallResponse{}); err != nil {
			return n, err
		}
	}
}

// opened opens a stream in both directions and sends its first message. It ends with the test.
func opened(t testing.TB, c pb.TestServiceClient) grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse] {
	t.Helper()
	s, err := c.FullDuplexCall(withKey(t.Context()))
	require.NoError(t, err)
	require.NoError(t, s.Send(request))
	return s
}

// entering is a backend with another Enter.
type entering struct {
	distributed.Backend
	enter func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error)
}

func (e entering) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	return e.enter(ctx, r)
}

func constant(key string, err error) grpcguard.KeyFunc {
	return func(context.Context, string, any) (string, error) { return key, err }
}

func never(t testing.TB) func(context.Context) error {
	return func(context.Context) error { t.Error("called without the lock"); return nil }
}

// withKey puts the key into the metadata of a call.
func withKey(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "product-id", secret)
}

// row is a row of the table.
type row struct {
	code   codes.Code
	reason string // "": a plain status
	retry  bool
}

var (
	lostRow       = row{codes.Aborted, "LOCK_LOST", false}
	heldRow       = row{codes.Aborted, "LOCK_HELD", true}
	invalidKeyRow = row{codes.InvalidArgument, "LOCK_INVALID_KEY", false}
)

// check compares an answer with its row of the table. Without a trailer the refusal is the client's own.
func (r row) check(t testing.TB, err error, trailer metadata.MD) {
	t.Helper()
	require.Error(t, err)
	s := status.Convert(err)
	require.Equal(t, r.code, s.Code(), s.Message())
	require.NotContains(t, s.String(), secret)
	var info *errdetails.ErrorInfo
	var retry *errdetails.RetryInfo
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	require.Equal(t, r.reason, info.GetReason())
	if r.reason != "" {
		require.Equal(t, "wllock", info.GetDomain())
	}
	require.Equal(t, r.retry, retry != nil)
	if r.retry {
		require.Positive(t, retry.GetRetryDelay().AsDuration())
	}
	if trailer != nil {
		r.checkPushback(t, trailer.Get("grpc-retry-pushback-ms"))
	}
}

func (r row) checkPushback(t testing.TB, pushback []string) {
	t.Helper()
	if r.reason == "" {
		require.Empty(t, pushback)
		return
	}
	require.Len(t, pushback, 1)
	ms, err := strconv.Atoi(pushback[0])
	require.NoError(t, err)
	require.Equal(t, r.retry, ms > 0, ms)
}

// taken is a Locker whose lock is held.
func taken(t testing.TB) *wllock.Locker {
	t.Helper()
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	return l
}

// isFree checks that the lock can be acquired at once.
func isFree(t testing.TB, l *wllock.Locker) {
	t.Helper()
	require.NoError(t, l.Do(context.Background(), "product", secret, func(context.Context) error { return nil },
		wllock.WithWait(30*time.Second), wllock.WithCallThreshold(wllock.Unlimited)))
}

// closeUnder closes l without waiting for its holders: their contexts end.
func closeUnder(l *wllock.Locker) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx) // says how many there were
}

// waiting waits until n callers wait for locks, held until n locks are held.
func waiting(t testing.TB, l *wllock.Locker, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Stats().Total.Waiting == n }, 5*time.Second, 100*time.Microsecond)
}

func held(t testing.TB, l *wllock.Locker, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Stats().Total.Held == n }, 5*time.Second, 100*time.Microsecond)
}
