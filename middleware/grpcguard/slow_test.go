package grpcguard_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

// Clients that open a call and send no request, or open a stream whose first message has the key and do not send it.
func TestSlowRequestsKeepNobodyWaiting(t *testing.T) {
	const clients = 20
	oneRequest := grpc.StreamDesc{ServerStreams: true}
	for name, test := range map[string]struct {
		method string
		desc   grpc.StreamDesc
		key    grpcguard.KeyFunc
	}{
		"unary":                  {"UnaryCall", grpc.StreamDesc{}, byMetadata},
		"one request, metadata":  {"StreamingOutputCall", oneRequest, byMetadata},
		"one request, message":   {"StreamingOutputCall", oneRequest, byPayload},
		"many requests, message": {"FullDuplexCall", grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, byPayload},
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			receive := func(s grpc.ServerStream) error { return s.RecvMsg(&pb.StreamingOutputCallRequest{}) }
			arrived := make(chan struct{}, clients)
			tapped := grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
				select {
				case arrived <- struct{}{}:
				default: // the honest one
				}
				return ctx, nil
			})
			options := append(streamServer(l, test.key), tapped, grpc.UnaryInterceptor(grpcguard.UnaryServerInterceptor(l, "product", test.key)))
			_, conn := startConn(t, &service{
				unary: func(context.Context) error { return nil },
				out:   func(grpc.ServerStream) error { return nil },
				both:  receive,
			}, options)
			ctx, cancel := context.WithCancel(withKey(t.Context()))
			defer cancel()
			open := func() grpc.ClientStream {
				s, err := conn.NewStream(ctx, &test.desc, "/"+pb.TestService_ServiceDesc.ServiceName+"/"+test.method)
				require.NoError(t, err)
				return s
			}
			for range clients {
				open()
			}
			for range clients {
				<-arrived
			}
			honest := open() // while all others have sent nothing
			if test.method == "UnaryCall" {
				require.NoError(t, honest.SendMsg(simple))
			} else {
				require.NoError(t, honest.SendMsg(request))
			}
			require.NoError(t, honest.CloseSend())
			if err := honest.RecvMsg(&pb.SimpleResponse{}); err != io.EOF {
				require.NoError(t, err)
			}
		})
	}
}

// A stream of requests is received under the lock. A client that sends nothing more keeps it until the hold ends, not for longer. One that idles
// has less time, and the next caller does not wait for the end of that.
func TestReceiveEndsWithTheHold(t *testing.T) {
	for name, test := range map[string]struct {
		option  grpcguard.Option
		message string
		check   func(t *testing.T, s grpc.ServerStream, err error)
	}{
		"held long": {grpcguard.WithCallOptions(wllock.WithLockTimeMax(50 * time.Millisecond)), "", func(t *testing.T, s grpc.ServerStream, err error) {
			assert.ErrorIs(t, err, wllock.ErrLockTimeMax)
			assert.ErrorIs(t, s.RecvMsg(&pb.StreamingOutputCallRequest{}), wllock.ErrLockTimeMax, "and none after it")
		}},
		"idle": {grpcguard.WithIdleTimeout(20 * time.Millisecond), "no message came", func(t *testing.T, s grpc.ServerStream, _ error) {
			assert.ErrorIs(t, s.Context().Err(), context.Canceled)
			assert.Error(t, s.SendMsg(response))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
				l := wllocktest.New(t)
				c := start(t, &service{both: func(s grpc.ServerStream) error {
					for {
						if err := s.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
							test.check(t, s, err)
							return status.Error(codes.DataLoss, "own") // is discarded
						}
					}
				}}, []grpc.ServerOption{grpc.StreamInterceptor(grpcguard.StreamServerInterceptor(l, "product", key, test.option))})
				s := opened(t, c)
				_, err := drain(s)
				lostRow.check(t, err, s.Trailer())
				require.Contains(t, status.Convert(err).Message(), test.message)
				isFree(t, l)
			})
		})
	}
}

// The default, and none. The time of the bubble stands still while the handler works.
func TestIdleTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		opts []grpcguard.Option
		want time.Duration
	}{
		"default": {nil, time.Second},
		"longer":  {[]grpcguard.Option{grpcguard.WithIdleTimeout(3 * time.Second)}, 3 * time.Second},
		"none":    {[]grpcguard.Option{grpcguard.WithIdleTimeout(0)}, wllock.DefaultLockTimeMax},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := wllocktest.New(t)
				ctx, cancel := context.WithCancel(t.Context())
				r := &receiver{ctx: ctx, sent: make(chan struct{})}
				defer close(r.sent) // gRPC ends what it received when the handler has returned
				defer cancel()
				guard := grpcguard.StreamServerInterceptor(l, "product", constant(secret, nil), test.opts...)
				err := guard(nil, r, &grpc.StreamServerInfo{IsClientStream: true}, func(_ any, s grpc.ServerStream) error {
					time.Sleep(5 * time.Second) // work is not idle
					begun := time.Now()
					err := s.RecvMsg(&pb.StreamingOutputCallRequest{})
					assert.Error(t, err)
					assert.Equal(t, min(test.want, 5*time.Second), time.Since(begun))
					return err
				})
				require.Equal(t, codes.Aborted, status.Code(err))
			})
		})
	}
}

// A client that does not read stops the handler at the end of its window.
func TestSendEndsWithTheHold(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		locked := make(chan struct{})
		c := start(t, &service{both: func(s grpc.ServerStream) error {
			if err := s.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
				return err
			}
			close(locked)
			large := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 1<<20)}}
			for {
				if err := s.SendMsg(large); err != nil {
					assert.ErrorIs(t, err, wllock.ErrLockTimeMax)
					return err
				}
			}
		}}, streamServer(l, key, wllock.WithLockTimeMax(50*time.Millisecond)))
		opened(t, c)
		<-locked
		isFree(t, l)
	})
}

// A panic of an inner stream, such as a codec's, continues in the handler, where interceptors recover it.
func TestPanicWhileReceivingContinues(t *testing.T) {
	l := wllocktest.New(t)
	guard := grpcguard.StreamServerInterceptor(l, "product", constant(secret, nil))
	require.PanicsWithValue(t, "boom", func() {
		_ = guard(nil, panicking{ctx: t.Context()}, &grpc.StreamServerInfo{IsClientStream: true}, func(_ any, s grpc.ServerStream) error {
			return s.RecvMsg(&pb.StreamingOutputCallRequest{})
		})
	})
	isFree(t, l)
}

type panicking struct {
	grpc.ServerStream
	ctx context.Context
}

func (p panicking) Context() context.Context { return p.ctx }
func (panicking) RecvMsg(any) error          { panic("boom") }

// An honest call is answered as soon as if nobody sent slowly.
func TestThousandSlowClients(t *testing.T) {
	testscope.Long(t, "measures")
	l := wllocktest.New(t)
	c := start(t, &service{both: func(s grpc.ServerStream) error { return s.RecvMsg(&pb.StreamingOutputCallRequest{}) }}, streamServer(l, byPayload))
	longest := func(d time.Duration) (longest time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			begun := time.Now()
			_, err := drain(opened(t, c))
			require.ErrorIs(t, err, io.EOF)
			longest = max(longest, time.Since(begun))
		}
		return longest
	}
	alone := longest(time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 1000 { // they open a stream, and send nothing
		_, err := c.FullDuplexCall(ctx)
		require.NoError(t, err)
	}
	beside := longest(testscope.Scale(3*time.Second, 30*time.Second))
	t.Logf("an honest call took %v at most alone, and %v beside 1000 slow clients", alone, beside)
	testscope.InTime(t, beside, alone+50*time.Millisecond, "an honest call")
}
