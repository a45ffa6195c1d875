package grpcguard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

// sides are the two ways to guard a unary call.
var sides = map[string]func(t testing.TB, s *service, l *wllock.Locker, key grpcguard.KeyFunc, opts ...wllock.CallOption) pb.TestServiceClient{
	"server": func(t testing.TB, s *service, l *wllock.Locker, key grpcguard.KeyFunc, opts ...wllock.CallOption) pb.TestServiceClient {
		return start(t, s, []grpc.ServerOption{grpc.UnaryInterceptor(
			grpcguard.UnaryServerInterceptor(l, "product", key, grpcguard.WithCallOptions(opts...)))})
	},
	"client": func(t testing.TB, s *service, l *wllock.Locker, key grpcguard.KeyFunc, opts ...wllock.CallOption) pb.TestServiceClient {
		return start(t, s, nil, grpc.WithUnaryInterceptor(
			grpcguard.UnaryClientInterceptor(l, "product", key, grpcguard.WithCallOptions(opts...))))
	},
}

// onBoth runs a test with the guard on each side.
func onBoth(t *testing.T, test func(t *testing.T, guarded guarded)) {
	for name, side := range sides {
		t.Run(name, func(t *testing.T) { test(t, guarded{name == "server", side}) })
	}
}

type guarded struct {
	server bool
	start  func(t testing.TB, s *service, l *wllock.Locker, key grpcguard.KeyFunc, opts ...wllock.CallOption) pb.TestServiceClient
}

// refused makes a call and checks that it is answered with the row.
func (g guarded) refused(t testing.TB, c pb.TestServiceClient, r row) {
	t.Helper()
	var trailer metadata.MD
	_, err := c.UnaryCall(t.Context(), simple, grpc.Trailer(&trailer))
	if !g.server {
		trailer = nil // the refusal comes from this side
	}
	r.check(t, err, trailer)
}

func never(t testing.TB) *service {
	return &service{unary: func(context.Context) error { t.Error("called without the lock"); return nil }}
}

func TestUnary(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l := wllocktest.New(t)
		own := status.Error(codes.NotFound, "no such product")
		answers := make(chan error, 2)
		c := g.start(t, &service{unary: func(ctx context.Context) error {
			assert.EqualValues(t, 1, l.Stats().Total.Held)
			if h, ok := wllock.HeldFrom(ctx); assert.Equal(t, g.server, ok) && ok {
				assert.Equal(t, "test:product:"+secret, h.Key())
			}
			return <-answers
		}}, l, byPayload)

		answers <- nil
		resp, err := c.UnaryCall(t.Context(), simple)
		require.NoError(t, err)
		require.Equal(t, "done", resp.GetUsername())

		answers <- own
		_, err = c.UnaryCall(t.Context(), simple)
		require.Equal(t, own.Error(), err.Error())
		isFree(t, l)
	})
}

func TestUnaryRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		for name, test := range map[string]struct {
			opts []wllock.CallOption
			key  grpcguard.KeyFunc
			row  row
		}{
			"queue full":    {opts: []wllock.CallOption{wllock.WithCallThreshold(0)}, row: row{codes.ResourceExhausted, "LOCK_QUEUE_FULL", true}},
			"wait timeout":  {opts: []wllock.CallOption{wllock.WithWait(5 * time.Millisecond)}, row: row{codes.ResourceExhausted, "LOCK_WAIT_TIMEOUT", true}},
			"held":          {opts: []wllock.CallOption{wllock.NoWait()}, row: heldRow},
			"wrong option":  {opts: []wllock.CallOption{wllock.WithWait(-1)}, row: row{codes.Internal, "LOCK_INTERNAL", false}},
			"key too long":  {key: constant(strings.Repeat("x", 513), nil), row: invalidKeyRow},
			"key empty":     {key: constant("", nil), row: invalidKeyRow},
			"key error":     {key: constant("", errors.New(secret)), row: invalidKeyRow},
			"key not there": {key: grpcguard.Metadata("product-id"), row: invalidKeyRow},
			"key of another type": {
				key: grpcguard.KeyFrom(func(*pb.StreamingOutputCallRequest) string { return secret }), row: invalidKeyRow},
			"fallback": {row: heldRow, opts: []wllock.CallOption{wllock.NoWait(), wllock.WithFallback(
				func(context.Context, error) error { t.Error("called"); return nil })}},
		} {
			t.Run(name, func(t *testing.T) {
				l := wllocktest.New(t)
				wllocktest.Hold(t, l, "product", secret)
				if test.key == nil {
					test.key = byPayload
				}
				g.refused(t, g.start(t, never(t), l, test.key, test.opts...), test.row)
			})
		}
	})
}

func constant(key string, err error) grpcguard.KeyFunc {
	return func(context.Context, string, any) (string, error) { return key, err }
}

// silent is a backend that does not respond.
type silent struct{ distributed.Backend }

func (silent) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	<-ctx.Done()
	return nil, nil, fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

// That a short wait has timed out meanwhile does not hide that the backend is unreachable.
func TestUnaryBackendUnavailableForAShortWait(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l, err := wllock.New("test", silent{memlock.New()})
		require.NoError(t, err)
		defer l.Close(t.Context())
		start := g.start(t, never(t), l, byPayload, wllock.WithWait(10*time.Millisecond))
		g.refused(t, start, row{codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", true})
	})
}

func TestUnaryBackendUnavailable(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l, faults := wllocktest.NewWithFaults(t)
		faults.Partition()
		g.refused(t, g.start(t, never(t), l, byPayload), row{codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", true})
		faults.Heal()
	})
}

func TestUnaryClosed(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l := wllocktest.New(t)
		require.NoError(t, l.Close(t.Context()))
		g.refused(t, g.start(t, never(t), l, byPayload), row{codes.Unavailable, "LOCK_CLOSED", true})
	})
}

func TestUnaryLost(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
		var runs atomic.Int32
		c := g.start(t, &service{unary: func(ctx context.Context) error {
			runs.Add(1)
			faults.Lose("product", secret)
			<-ctx.Done()
			return nil // as if all were well
		}}, l, byPayload)
		g.refused(t, c, lostRow)
		require.EqualValues(t, 1, runs.Load())
		isFree(t, l)
	})
}

func TestUnaryHeldForTooLong(t *testing.T) {
	l := wllocktest.New(t)
	results := make(chan error, 2)
	c := start(t, &service{unary: func(ctx context.Context) error {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), wllock.ErrLockTimeMax)
		return <-results
	}}, unaryServer(l, wllock.WithLockTimeMax(10*time.Millisecond)))
	var trailer metadata.MD
	results <- context.Canceled
	_, err := c.UnaryCall(t.Context(), simple, grpc.Trailer(&trailer))
	lostRow.check(t, err, trailer)

	results <- nil // late, but done while the lease lasted
	_, err = c.UnaryCall(t.Context(), simple)
	require.NoError(t, err)
}

// Close has timed out. Unlike a call that was not admitted, this one must not be retried: it may have done its work.
func TestUnaryClosedUnderTheCall(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l := wllocktest.New(t)
		c := g.start(t, &service{unary: func(ctx context.Context) error {
			closeUnder(l)
			<-ctx.Done()
			return ctx.Err()
		}}, l, byPayload)
		g.refused(t, c, lostRow)
	})
}

// Closed during the call, which succeeds all the same: the lease lasted.
func TestUnarySucceedsDespiteClose(t *testing.T) {
	l := wllocktest.New(t)
	resp, err := guardOf(l)(t.Context(), simple, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
		closeUnder(l)
		return "done", nil
	})
	require.NoError(t, err)
	require.Equal(t, "done", resp)
}

// A call that holds one lock and waits for another: the guard of the other must not suggest a retry either.
func TestUnaryClosedWhileTheCallWaitsForAnInnerLock(t *testing.T) {
	outer, inner := wllocktest.New(t), wllocktest.New(t)
	wllocktest.Hold(t, inner, "product", secret)
	c := start(t, never(t), []grpc.ServerOption{grpc.ChainUnaryInterceptor(guardOf(outer), guardOf(inner))})
	var trailer metadata.MD
	done := make(chan error)
	go func() {
		_, err := c.UnaryCall(context.Background(), simple, grpc.Trailer(&trailer))
		done <- err
	}()
	waiting(t, inner, 1)
	closeUnder(outer)
	lostRow.check(t, <-done, nil)
	for _, pushback := range trailer.Get("grpc-retry-pushback-ms") {
		require.Equal(t, "-1", pushback)
	}
}

func TestUnaryCallerLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l := wllocktest.New(t)
		wllocktest.Hold(t, l, "product", secret)
		c := g.start(t, never(t), l, byPayload)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := c.UnaryCall(ctx, simple)
			done <- err
		}()
		waiting(t, l, 1)
		cancel()
		left := time.Now()
		row{code: codes.Canceled}.check(t, <-done, nil)
		waiting(t, l, 0)
		testscope.InTime(t, time.Since(left), 50*time.Millisecond, "leaving")

		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := c.UnaryCall(ctx, simple)
		row{code: codes.DeadlineExceeded}.check(t, err, nil)
		waiting(t, l, 0)
	})
}

// The server's own view of a call whose context has ended; the client has not waited for it.
func TestUnaryServerStatusOfAnEndedContext(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	guard := grpcguard.UnaryServerInterceptor(l, "product", byPayload)
	call := func(ctx context.Context) error {
		_, err := guard(ctx, simple, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("called") })
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	row{code: codes.DeadlineExceeded}.check(t, call(ctx), metadata.MD{})
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	row{code: codes.Canceled}.check(t, call(ctx), metadata.MD{})
}

func TestUnaryPanicReleases(t *testing.T) {
	l := wllocktest.New(t)
	var seen any
	recovering := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			seen = recover()
			err = status.Error(codes.Internal, "panic")
		}()
		return h(ctx, req)
	}
	c := start(t, &service{unary: func(context.Context) error { panic("boom") }}, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(recovering, grpcguard.UnaryServerInterceptor(l, "product", byPayload))})
	_, err := c.UnaryCall(t.Context(), simple)
	require.Error(t, err)
	require.Equal(t, "boom", seen)
	isFree(t, l)
}

// Outer interceptors can match the error and log it, without the key.
func TestRefusalIsTheErrorOfTheLock(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	_, err := grpcguard.UnaryServerInterceptor(l, "product", byPayload, grpcguard.WithCallOptions(wllock.NoWait()))(
		t.Context(), simple, &grpc.UnaryServerInfo{}, nil)
	require.ErrorIs(t, err, wllock.ErrHeld)
	e, ok := errors.AsType[*wllock.Error](err)
	require.True(t, ok)
	require.False(t, e.Ran)
	require.NotContains(t, err.Error(), secret)
}

func TestRefusalTellsThatTheCallWasAdmitted(t *testing.T) {
	for _, why := range []error{wllock.ErrClosed, wllock.ErrLockTimeMax} {
		t.Run(why.Error(), func(t *testing.T) {
			l := wllocktest.New(t)
			_, err := guardOf(l, wllock.WithLockTimeMax(10*time.Millisecond))(t.Context(), simple, &grpc.UnaryServerInfo{},
				func(ctx context.Context, _ any) (any, error) {
					if why == wllock.ErrClosed {
						closeUnder(l)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				})
			require.ErrorIs(t, err, why)
			e, ok := errors.AsType[*wllock.Error](err)
			require.True(t, ok)
			require.True(t, e.Ran)
			require.Equal(t, "test:product:"+secret, e.Key)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestMetadataAsKey(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l := wllocktest.New(t)
		c := g.start(t, &service{unary: func(context.Context) error {
			assert.EqualValues(t, 1, l.Stats().Names["product"].Held)
			return nil
		}}, l, grpcguard.Metadata("product-id"))
		_, err := c.UnaryCall(withKey(t.Context()), simple)
		require.NoError(t, err)
		_, err = c.UnaryCall(withKey(withKey(t.Context())), simple)
		invalidKeyRow.check(t, err, nil)
		// What came in to a server that is a client itself is no key of what goes out.
		in := metadata.NewIncomingContext(t.Context(), metadata.Pairs("product-id", secret))
		_, err = c.UnaryCall(in, simple)
		invalidKeyRow.check(t, err, nil)
	})
}

func TestMistakesPanic(t *testing.T) {
	l := wllocktest.New(t)
	needs := "grpcguard: an interceptor needs a Locker and a key function"
	require.PanicsWithValue(t, needs, func() { grpcguard.UnaryServerInterceptor(nil, "product", byPayload) })
	require.PanicsWithValue(t, needs, func() { grpcguard.StreamClientInterceptor(l, "product", nil) })
	require.PanicsWithValue(t, `grpcguard: an interceptor: name "a product" has ' ' at byte 1, want letters, digits, and . _ / - only`,
		func() { grpcguard.StreamServerInterceptor(l, "a product", byPayload) })
	require.PanicsWithValue(t, "grpcguard: an option of an interceptor is nil", func() { grpcguard.UnaryClientInterceptor(l, "product", byPayload, nil) })
	require.PanicsWithValue(t, "grpcguard: WithCallOptions: an option is nil", func() { grpcguard.WithCallOptions(wllock.NoWait(), nil) })
	require.PanicsWithValue(t, "grpcguard: KeyFrom(nil): want a function", func() { grpcguard.KeyFrom[proto.Message](nil) })
}

// Interceptors outside of ours may log the cause of a refusal.
func TestCausesAreRedacted(t *testing.T) {
	l := wllocktest.New(t, wllock.WithKeyRedaction(func(string) string { return "#1" }))
	wllocktest.Hold(t, l, "product", secret)
	inner := grpcguard.UnaryServerInterceptor(l, "product", constant(secret, nil), grpcguard.WithCallOptions(wllock.NoWait()))
	_, err := inner(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
	require.ErrorIs(t, err, wllock.ErrHeld)
	for ; err != nil; err = errors.Unwrap(err) {
		require.NotContains(t, fmt.Sprintf("%+v", err), secret)
	}
}

// What has ended an admitted call is told with the key as it is shown, also if the handler returns an error of its own.
func TestEndOfAnAdmittedCallIsRedacted(t *testing.T) {
	for _, why := range []error{wllock.ErrClosed, wllock.ErrLockTimeMax} {
		for name, own := range map[string]error{"its own": errors.New("write failed"), "the context's": nil} {
			t.Run(why.Error()+", "+name, func(t *testing.T) {
				l := wllocktest.New(t, wllock.WithKeyRedaction(func(string) string { return "#1" }))
				guard := grpcguard.UnaryServerInterceptor(l, "product", constant(secret, nil), grpcguard.WithCallOptions(wllock.WithLockTimeMax(10*time.Millisecond)))
				_, err := guard(t.Context(), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
					if why == wllock.ErrClosed {
						closeUnder(l)
					}
					<-ctx.Done()
					return nil, cmp.Or(own, ctx.Err())
				})
				require.ErrorIs(t, err, why)
				e, ok := errors.AsType[*wllock.Error](err)
				require.True(t, ok)
				require.Equal(t, "test:product:#1", e.Key)
				for ; err != nil; err = errors.Unwrap(err) {
					require.NotContains(t, fmt.Sprintf("%+v", err), secret)
				}
			})
		}
	}
}
