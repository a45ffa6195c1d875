package grpcguard_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

// locksOf are those of a call with a key.
func locksOf(key string) []wllock.Resource {
	return []wllock.Resource{{Name: "product", Key: key}, {Name: "account", Key: "1"}}
}

// allByPayload and allByMetadata are the two ways to several keys.
var (
	allByPayload = func(ctx context.Context, method string, req any) ([]wllock.Resource, error) {
		return grpcguard.KeysFrom(func(r payloader) []wllock.Resource { return locksOf(string(r.GetPayload().GetBody())) })(ctx, method, req)
	}
	allByMetadata = func(ctx context.Context, method string, req any) ([]wllock.Resource, error) {
		key, err := byMetadata(ctx, method, req)
		return locksOf(key), err
	}
	allTimes = map[string]grpcguard.KeysFunc{"metadata": allByMetadata, "first message": allByPayload}
)

// allSides are the two ways to guard a unary call with several locks.
func allSides(t *testing.T, test func(t *testing.T, g guarded, all func(grpcguard.KeysFunc) guarded)) {
	for _, server := range []bool{true, false} {
		t.Run(map[bool]string{true: "server", false: "client"}[server], func(t *testing.T) {
			all := func(keys grpcguard.KeysFunc) guarded {
				return guarded{server, func(t testing.TB, s *service, l *wllock.Locker, _ grpcguard.KeyFunc, opts ...wllock.CallOption) pb.TestServiceClient {
					calls := grpcguard.WithCallOptions(opts...)
					if server {
						return start(t, s, []grpc.ServerOption{grpc.UnaryInterceptor(grpcguard.UnaryServerInterceptorAll(l, keys, calls))})
					}
					return start(t, s, nil, grpc.WithUnaryInterceptor(grpcguard.UnaryClientInterceptorAll(l, keys, calls)))
				}}
			}
			test(t, all(allByPayload), all)
		})
	}
}

// hasAll checks that a handler has its locks.
func hasAll(t testing.TB, ctx context.Context) {
	for name, key := range map[string]string{"product": secret, "account": "1"} {
		h, ok := wllock.HeldKey(ctx, name, key)
		if assert.True(t, ok, name) {
			assert.Positive(t, h.Fence())
		}
	}
}

func TestUnaryWithAllLocks(t *testing.T) {
	allSides(t, func(t *testing.T, g guarded, _ func(grpcguard.KeysFunc) guarded) {
		l := wllocktest.New(t)
		c := g.start(t, &service{unary: func(ctx context.Context) error {
			assert.EqualValues(t, 2, l.Stats().Total.Held)
			if g.server {
				hasAll(t, ctx)
			}
			return nil
		}}, l, nil)
		_, err := c.UnaryCall(t.Context(), simple)
		require.NoError(t, err)
		require.Zero(t, l.Stats().Total.Held)
	})
}

func TestUnaryRefusalsOfAllLocks(t *testing.T) {
	internal := row{codes.Internal, "LOCK_INTERNAL", false}
	var many []wllock.Resource
	for i := range 65 {
		many = append(many, wllock.Resource{Name: "product", Key: string(rune('A' + i))})
	}
	returns := func(all []wllock.Resource, err error) grpcguard.KeysFunc {
		return func(context.Context, string, any) ([]wllock.Resource, error) { return all, err }
	}
	allSides(t, func(t *testing.T, _ guarded, all func(grpcguard.KeysFunc) guarded) {
		for name, test := range map[string]struct {
			keys grpcguard.KeysFunc
			opts []wllock.CallOption
			row  row
		}{
			"held":        {allByPayload, []wllock.CallOption{wllock.NoWait()}, heldRow},
			"queue full":  {allByPayload, []wllock.CallOption{wllock.WithCallThreshold(0)}, row{codes.ResourceExhausted, "LOCK_QUEUE_FULL", true}},
			"none":        {returns(nil, nil), nil, invalidKeyRow},
			"too many":    {returns(many, nil), nil, invalidKeyRow},
			"an empty":    {returns(locksOf(""), nil), nil, invalidKeyRow},
			"error":       {returns(nil, errors.New(secret)), nil, invalidKeyRow},
			"a bad name":  {returns([]wllock.Resource{{Name: "a b", Key: "1"}}, nil), nil, internal},
			"not a proto": {grpcguard.KeysFrom(func(*pb.Payload) []wllock.Resource { return nil }), nil, invalidKeyRow},
		} {
			t.Run(name, func(t *testing.T) {
				l := wllocktest.New(t)
				wllocktest.Hold(t, l, "product", secret)
				g := all(test.keys)
				g.refused(t, g.start(t, never(t), l, nil, test.opts...), test.row)
			})
		}
	})
}

func TestLockOrderIsAMistakeOfTheProgram(t *testing.T) {
	l := wllocktest.New(t)
	inner := grpcguard.UnaryServerInterceptorAll(l, allByPayload)
	c := start(t, never(t), []grpc.ServerOption{grpc.ChainUnaryInterceptor(guardOf(l), inner)}) // account comes before product
	var trailer metadata.MD
	_, err := c.UnaryCall(t.Context(), simple, grpc.Trailer(&trailer))
	row{codes.Internal, "LOCK_INTERNAL", false}.check(t, err, trailer)
}

func TestUnaryLosesOneOfItsLocks(t *testing.T) {
	allSides(t, func(t *testing.T, g guarded, _ func(grpcguard.KeysFunc) guarded) {
		for name, key := range map[string]string{"product": secret, "account": "1"} {
			l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			c := g.start(t, &service{unary: func(ctx context.Context) error {
				faults.Lose(name, key)
				<-ctx.Done()
				return nil
			}}, l, nil)
			g.refused(t, c, lostRow)
			isFree(t, l)
		}
	})
}

func TestServerStreamHasAllLocks(t *testing.T) {
	for name, keys := range allTimes {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			c := start(t, &service{out: func(s grpc.ServerStream) error {
				hasAll(t, s.Context())
				return s.SendMsg(response)
			}}, []grpc.ServerOption{grpc.StreamInterceptor(grpcguard.StreamServerInterceptorAll(l, keys))})
			s, err := c.StreamingOutputCall(withKey(t.Context()), request)
			require.NoError(t, err)
			n, err := drain(s)
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, 1, n)
			require.Zero(t, l.Stats().Total.Held)
		})
	}
}

func TestServerStreamOfAllLocksRefusedAndLost(t *testing.T) {
	for name, keys := range allTimes {
		t.Run(name, func(t *testing.T) {
			l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			c := start(t, &service{out: func(s grpc.ServerStream) error {
				faults.Lose("account", "1")
				<-s.Context().Done()
				return nil
			}}, []grpc.ServerOption{grpc.StreamInterceptor(grpcguard.StreamServerInterceptorAll(l, keys,
				grpcguard.WithCallOptions(wllock.NoWait())))})
			call := func(want row) {
				s, err := c.StreamingOutputCall(withKey(t.Context()), request)
				require.NoError(t, err)
				_, err = drain(s)
				want.check(t, err, s.Trailer())
			}
			call(lostRow)
			isFree(t, l)
			wllocktest.Hold(t, l, "product", secret)
			call(heldRow)
		})
	}
}

func TestClientStreamHoldsAllLocksUntilItsLastMessage(t *testing.T) {
	for name, keys := range allTimes {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			c := start(t, &service{out: func(s grpc.ServerStream) error { return s.SendMsg(response) }}, nil,
				grpc.WithStreamInterceptor(grpcguard.StreamClientInterceptorAll(l, keys, grpcguard.WithCallOptions(wllock.NoWait()))))
			s, err := c.StreamingOutputCall(withKey(t.Context()), request)
			require.NoError(t, err)
			_, err = s.Recv()
			require.NoError(t, err)
			require.EqualValues(t, 2, l.Stats().Total.Held)
			_, err = s.Recv()
			require.ErrorIs(t, err, io.EOF)
			require.Zero(t, l.Stats().Total.Held)

			ctx, cancel := context.WithCancel(withKey(t.Context())) // a stream that is dropped
			_, err = c.StreamingOutputCall(ctx, request)
			require.NoError(t, err)
			cancel()
			held(t, l, 0)

			wllocktest.Hold(t, l, "account", "1")
			_, err = c.StreamingOutputCall(withKey(t.Context()), request)
			heldRow.check(t, err, nil)
		})
	}
}

func TestMistakesWithAllLocksPanic(t *testing.T) {
	l := wllocktest.New(t)
	needs := "grpcguard: an interceptor needs a Locker and a function that returns the keys"
	require.PanicsWithValue(t, needs, func() { grpcguard.UnaryServerInterceptorAll(nil, allByPayload) })
	require.PanicsWithValue(t, needs, func() { grpcguard.StreamClientInterceptorAll(l, nil) })
	require.PanicsWithValue(t, "grpcguard: an option of an interceptor is nil", func() { grpcguard.UnaryClientInterceptorAll(l, allByPayload, nil) })
	require.PanicsWithValue(t, "grpcguard: KeysFrom(nil): want a function", func() { grpcguard.KeysFrom[proto.Message](nil) })
}

// broken is a backend that panics.
type broken struct{ distributed.Backend }

func (broken) Enter(context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
	panic("backend")
}

// A panic on a goroutine of the interceptor's would end the process.
func TestPanicOfTheBackendReachesTheStreamsGoroutine(t *testing.T) {
	l, err := wllock.New("test", broken{memlock.New()})
	require.NoError(t, err)
	guard := grpcguard.StreamServerInterceptorAll(l, allByPayload)
	r := &receiver{ctx: t.Context(), sent: make(chan struct{})}
	close(r.sent)
	require.PanicsWithValue(t, "backend", func() {
		_ = guard(nil, r, &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error {
			return s.RecvMsg(&pb.StreamingOutputCallRequest{})
		})
	})
	require.NoError(t, l.Close(t.Context()))
}
