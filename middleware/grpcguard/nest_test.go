package grpcguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// wrapped is a stream as interceptors of other libraries wrap it: its context is taken when the interceptor runs.
type wrapped struct {
	grpc.ServerStream
	ctx context.Context
}

func (w wrapped) Context() context.Context { return w.ctx }

type early struct{}

// wrapStream puts the context that a stream has before its first message below one with a value.
func wrapStream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, wrapped{s, context.WithValue(s.Context(), early{}, true)})
}

// streams are the kinds of calls that a stream guard meets: in each the handler has received a message when it calls inside.
var streams = map[string]func(t *testing.T, inside func(ctx context.Context) error, server []grpc.ServerOption) error{
	"one request": func(t *testing.T, inside func(ctx context.Context) error, server []grpc.ServerOption) error {
		c := start(t, &service{out: func(s grpc.ServerStream) error { return inside(s.Context()) }}, server)
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		_, err = drain(s)
		return err
	},
	"requests": func(t *testing.T, inside func(ctx context.Context) error, server []grpc.ServerOption) error {
		c := start(t, &service{in: func(s grpc.ServerStream) error {
			if err := s.RecvMsg(&pb.StreamingInputCallRequest{}); err != nil {
				return err
			}
			if err := inside(s.Context()); err != nil {
				return err
			}
			return s.SendMsg(&pb.StreamingInputCallResponse{})
		}}, server)
		s, err := c.StreamingInputCall(withKey(t.Context()))
		require.NoError(t, err)
		_ = s.Send(&pb.StreamingInputCallRequest{Payload: payload})
		if _, err = s.CloseAndRecv(); err == nil {
			err = io.EOF
		}
		return err
	},
	"both ways": func(t *testing.T, inside func(ctx context.Context) error, server []grpc.ServerOption) error {
		c := start(t, &service{both: func(s grpc.ServerStream) error {
			before := s.Context()
			if err := s.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
				return err
			}
			return inside(before)
		}}, server)
		s, err := c.FullDuplexCall(withKey(t.Context()))
		require.NoError(t, err)
		_ = s.Send(request)
		_, err = drain(s)
		return err
	},
}

// A guard inside a guard of a stream: the inner one sees the lock of the outer one, whenever either takes it, whoever has wrapped the stream,
// and whenever the handler has taken its context.
func TestStreamGuardsNest(t *testing.T) {
	for kind, call := range streams {
		for outer, outerKey := range keys {
			for inner, innerKey := range keys {
				t.Run(fmt.Sprintf("%s/%s around %s", kind, outer, inner), func(t *testing.T) {
					l := wllocktest.New(t)
					chain := func(name string, opts ...wllock.CallOption) []grpc.ServerOption {
						return []grpc.ServerOption{grpc.ChainStreamInterceptor(wrapStream,
							grpcguard.StreamServerInterceptor(l, name, outerKey, grpcguard.WithCallOptions(opts...)), wrapStream,
							grpcguard.StreamServerInterceptor(l, "product", innerKey), wrapStream)}
					}
					inside := func(names ...string) func(ctx context.Context) error {
						return func(ctx context.Context) error {
							for _, name := range names {
								_, ok := wllock.HeldKey(ctx, name, secret)
								assert.True(t, ok, name)
								assert.NoError(t, l.Do(ctx, name, secret, func(context.Context) error { return nil }, wllock.WithWait(time.Second)))
							}
							assert.EqualValues(t, len(names), l.Stats().Total.Held)
							assert.NoError(t, ctx.Err())
							err := l.DoAll(ctx, []wllock.Resource{{Name: "account", Key: "a"}, {Name: "zoo", Key: "z"}}, func(context.Context) error { return nil })
							assert.ErrorIs(t, err, wllock.ErrLockOrder)
							return nil
						}
					}
					require.ErrorIs(t, call(t, inside("product"), chain("product")), io.EOF)
					require.ErrorIs(t, call(t, inside("warehouse", "product"), chain("warehouse")), io.EOF)
					err := call(t, inside(), chain("product", wllock.Shared()))
					require.Equal(t, codes.Internal, status.Code(err), "%v", err)
					require.ErrorContains(t, err, "lock")
					isFree(t, l)
				})
			}
		}
	}
}

// When the lock of one of two guards is lost, every context of the stream ends with that cause, also one that was taken before there was a
// lock; and before another process is inside.
func TestEveryContextOfAStreamEndsWithItsHold(t *testing.T) {
	for outer, outerKey := range keys {
		for inner, innerKey := range keys {
			for _, lost := range []string{"account", "product"} {
				t.Run(fmt.Sprintf("%s around %s/%s", outer, inner, lost), func(t *testing.T) {
					t.Parallel()
					l, faults := wllocktest.NewWithFaults(t)
					var taken context.Context
					ended := make(chan error, 1)
					err := streams["both ways"](t, func(ctx context.Context) error {
						derived, cancel := context.WithTimeout(taken, time.Minute)
						defer cancel()
						faults.Lose(lost, secret)
						<-derived.Done()
						assert.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
						ended <- context.Cause(taken)
						return errors.New("late")
					}, []grpc.ServerOption{grpc.ChainStreamInterceptor(
						grpcguard.StreamServerInterceptor(l, "account", outerKey),
						grpcguard.StreamServerInterceptor(l, "product", innerKey),
						func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
							taken = s.Context()
							return next(srv, wrapped{s, context.WithValue(taken, early{}, true)})
						})})
					lostRow.check(t, err, nil)
					require.ErrorIs(t, <-ended, wllock.ErrLeaseLost)
				})
			}
		}
	}
}

// Guards of calls inside one another, of one key: a unary call's, its client's, and the request's that brought it over HTTP. Each sees the
// lock of the one around it.
func TestGuardsOfCallsNest(t *testing.T) {
	l := wllocktest.New(t)
	shared := grpcguard.WithCallOptions(wllock.Shared())
	backend := start(t, &service{unary: func(context.Context) error { return nil }}, nil)
	for name, test := range map[string]struct {
		guards []grpc.UnaryServerInterceptor
		client grpc.UnaryClientInterceptor
		want   codes.Code
	}{
		"unary in unary":    {guards: []grpc.UnaryServerInterceptor{guardOf(l), guardOf(l)}},
		"shared in unary":   {guards: []grpc.UnaryServerInterceptor{guardOf(l), grpcguard.UnaryServerInterceptor(l, "product", byPayload, shared)}},
		"unary in shared":   {guards: []grpc.UnaryServerInterceptor{grpcguard.UnaryServerInterceptor(l, "product", byPayload, shared), guardOf(l)}, want: codes.Internal},
		"client in server":  {guards: []grpc.UnaryServerInterceptor{guardOf(l)}, client: grpcguard.UnaryClientInterceptor(l, "product", byPayload)},
		"client of another": {guards: []grpc.UnaryServerInterceptor{guardOf(l)}, client: grpcguard.UnaryClientInterceptor(l, "warehouse", byPayload)},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, &service{unary: func(ctx context.Context) error {
				_, ok := wllock.HeldKey(ctx, "product", secret)
				assert.True(t, ok)
				if test.client == nil {
					return nil
				}
				return test.client(ctx, "/unary", simple, &pb.SimpleResponse{}, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
					_, err := backend.UnaryCall(ctx, simple)
					return err
				})
			}}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(test.guards...)})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := c.UnaryCall(ctx, simple)
			require.Equal(t, test.want, status.Code(err), "%v", err)
			isFree(t, l)
		})
	}

	t.Run("streams in HTTP", func(t *testing.T) {
		server := grpc.NewServer(streamServer(l, byMetadata)...)
		pb.RegisterTestServiceServer(server, &service{both: func(s grpc.ServerStream) error {
			if err := s.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
				return err
			}
			assert.EqualValues(t, 1, l.Stats().Total.Held, "the same lock")
			return nil
		}})
		guarded := httpguard.New(l, "product", func(*http.Request) (string, error) { return secret, nil }, httpguard.WithoutBodyBuffer())(server)
		web := &http.Server{Handler: guarded, Protocols: new(http.Protocols)}
		web.Protocols.SetUnencryptedHTTP2(true)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = web.Serve(listener) }()
		defer web.Close()
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(withKey(t.Context()), 5*time.Second)
		defer cancel()
		s, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Send(request))
		_, err = drain(s)
		require.ErrorIs(t, err, io.EOF)
	})
}
