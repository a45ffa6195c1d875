package grpcguard_test

import (
	"context"
	"sync"
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

// A handler of many requests usually receives them on a goroutine. Here the handler returns while the first request, which
// contains the key, is on its way to that goroutine.

// forEver are the options of a lock that only its holder can release, so that a leaked one is noticed.
var forEver = []wllock.CallOption{wllock.WithLockTimeMax(0)}

// receiver is a server stream of one message, which the test delivers.
type receiver struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan struct{}
}

func (r *receiver) Context() context.Context { return r.ctx }
func (r *receiver) RecvMsg(m any) error {
	<-r.sent
	m.(*pb.StreamingOutputCallRequest).Payload = payload
	return nil
}

// newReceiver returns one whose message is there if it was sent.
func newReceiver(t testing.TB, sent bool) *receiver {
	r := &receiver{ctx: t.Context(), sent: make(chan struct{})}
	if sent {
		close(r.sent)
	}
	return r
}

// leaving runs a handler that receives on a goroutine and returns when ready has returned. leaving returns the result of
// that goroutine. gRPC has not ended the stream's context by then.
func leaving(t *testing.T, l *wllock.Locker, r *receiver, ready func()) <-chan error {
	t.Helper()
	received := make(chan error, 1)
	guard := grpcguard.StreamServerInterceptor(l, "product", byPayload, grpcguard.WithCallOptions(forEver...))
	require.NoError(t, guard(nil, r, &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error {
		go func() { received <- s.RecvMsg(&pb.StreamingOutputCallRequest{}) }()
		ready()
		return nil
	}))
	return received
}

func TestFirstMessageAfterTheHandlerTakesNoLock(t *testing.T) {
	l := wllocktest.New(t)
	r := newReceiver(t, false)
	received := leaving(t, l, r, func() {})
	close(r.sent)
	require.Error(t, <-received)
	isFree(t, l)
}

func TestWaitForTheLockEndsWithTheHandler(t *testing.T) {
	l := taken(t)
	require.Error(t, <-leaving(t, l, newReceiver(t, true), func() { waiting(t, l, 1) }))
	require.EqualValues(t, 1, l.Stats().Total.Held, "the other holder still has it")
}

func TestLockThatComesAfterTheHandlerIsReleased(t *testing.T) {
	b, asked, answer := memlock.New(), make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(asked)
		<-answer
	})
	l := testlocker.On(t, entering{b, func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
		first() // is answered when the test says so, whether it is still awaited or not
		return b.Enter(context.WithoutCancel(ctx), r)
	}}, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	received := leaving(t, l, newReceiver(t, true), func() { <-asked })
	close(answer)
	require.Error(t, <-received)
	isFree(t, l)
}

// The same over a real connection, where either may come first.
func TestHandlerLeavesAsItsFirstMessageComes(t *testing.T) {
	for name, opts := range map[string][]wllock.CallOption{
		"lock": forEver, "refusal": {wllock.WithWait(-1)},
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			var receiving sync.WaitGroup
			c := start(t, &service{both: func(s grpc.ServerStream) error {
				begun := make(chan struct{})
				receiving.Go(func() {
					close(begun)
					_ = s.RecvMsg(&pb.StreamingOutputCallRequest{})
				})
				<-begun
				return nil
			}}, streamServer(l, byPayload, opts...))
			for range 1000 {
				s, err := c.FullDuplexCall(t.Context())
				require.NoError(t, err)
				_ = s.Send(request)
				_, err = s.Recv()
				require.Error(t, err)
			}
			receiving.Wait()
			assert.Zero(t, l.Stats().Total.Held)
		})
	}
}
