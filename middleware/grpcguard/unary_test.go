package grpcguard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

// Its time is over, or the Locker is closed during the call, which succeeds all the same: the lease lasted.
func TestUnarySucceedsLate(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, l *wllock.Locker){
		"held for too long": func(ctx context.Context, _ *wllock.Locker) { <-ctx.Done() },
		"closed":            func(_ context.Context, l *wllock.Locker) { closeUnder(l) },
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			guard := guardOf(l, wllock.WithLockTimeMax(10*time.Millisecond))
			resp, err := guard(t.Context(), simple, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
				end(ctx, l)
				return "done", nil
			})
			require.NoError(t, err)
			require.Equal(t, "done", resp)
		})
	}
}

// A call that holds one lock and waits for another: the guard of the other must not suggest a retry either.
func TestUnaryClosedWhileTheCallWaitsForAnInnerLock(t *testing.T) {
	outer, inner := wllocktest.New(t), taken(t)
	c := start(t, &service{unary: never(t)}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(guardOf(outer), guardOf(inner))})
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

// A handler that calls a Locker itself answers as an interceptor does, and its own errors as they are.
func TestAHandlerRefuses(t *testing.T) {
	l, full := taken(t), status.Error(codes.OutOfRange, "none left")
	var key string
	c := start(t, &service{unary: func(ctx context.Context) error {
		return grpcguard.Refuse(ctx, l.Do(ctx, "product", key, func(context.Context) error { return full }, wllock.NoWait()))
	}}, nil)
	for _, each := range []struct {
		key  string
		want row
	}{{secret, heldRow}, {"", invalidKeyRow}} {
		key = each.key
		var trailer metadata.MD
		_, err := c.UnaryCall(t.Context(), simple, grpc.Trailer(&trailer))
		each.want.check(t, err, trailer)
	}
	key = "free"
	_, err := c.UnaryCall(t.Context(), simple)
	require.Equal(t, full.Error(), err.Error())
	require.NoError(t, grpcguard.Refuse(t.Context(), nil))
}

func TestLockOrderIsAMistakeOfTheProgram(t *testing.T) {
	l := wllocktest.New(t)
	inner := grpcguard.UnaryServerInterceptorAll(l, allByPayload)
	c := start(t, &service{unary: never(t)}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(guardOf(l), inner)}) // account comes before product
	var trailer metadata.MD
	_, err := c.UnaryCall(t.Context(), simple, grpc.Trailer(&trailer))
	row{codes.Internal, "LOCK_INTERNAL", false}.check(t, err, trailer)
}

// The server's own view of a call whose context has ended; the client has not waited for it.
func TestUnaryServerStatusOfAnEndedContext(t *testing.T) {
	l := taken(t)
	call := func(ctx context.Context) error {
		_, err := guardOf(l)(ctx, simple, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("called") })
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	row{code: codes.DeadlineExceeded}.check(t, call(ctx), metadata.MD{})
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	row{code: codes.Canceled}.check(t, call(ctx), metadata.MD{})
}

// Outer interceptors can match the error of a refusal, or of what has ended an admitted call, and log it without the key. With a redaction they
// can log its causes, too. It has the key as it is shown, also if the handler returns an error of its own.
func TestRefusalIsTheErrorOfTheLock(t *testing.T) {
	redaction := wllock.WithKeyRedaction(func(string) string { return "#1" })
	for _, why := range []error{wllock.ErrHeld, wllock.ErrClosed, wllock.ErrLockTimeMax} {
		for name, own := range map[string]error{"its own": errors.New("write failed"), "the context's": nil} {
			for shown, opts := range map[string][]wllock.Option{secret: nil, "#1": {redaction}} {
				t.Run(fmt.Sprintf("%v, %s, %s", why, name, shown), func(t *testing.T) {
					l := wllocktest.New(t, opts...)
					if why == wllock.ErrHeld {
						wllocktest.Hold(t, l, "product", secret)
					}
					guard := guardOf(l, wllock.NoWait(), wllock.WithLockTimeMax(10*time.Millisecond))
					_, err := guard(t.Context(), simple, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
						if why == wllock.ErrClosed {
							closeUnder(l)
						}
						<-ctx.Done()
						return nil, cmp.Or(own, ctx.Err())
					})
					require.ErrorIs(t, err, why)
					e, ok := errors.AsType[*wllock.Error](err)
					require.True(t, ok)
					require.Equal(t, why != wllock.ErrHeld, e.Ran)
					require.Equal(t, "test:product:"+shown, e.Key)
					require.NotContains(t, err.Error(), secret)
					for cause := err; cause != nil && opts != nil; cause = errors.Unwrap(cause) {
						require.NotContains(t, fmt.Sprintf("%+v", cause), secret)
					}
				})
			}
		}
	}
}

func TestMetadataAsKey(t *testing.T) {
	withForms(t, func(f form) bool { return !f.stream && !f.several }, func(t *testing.T, f form) {
		l := wllocktest.New(t)
		f.key = byMetadata
		call := f.start(t, l, func(context.Context) error {
			assert.EqualValues(t, 1, l.Stats().Names["product"].Held)
			return nil
		})
		_, err := call(withKey(t.Context()))
		require.NoError(t, err)
		_, err = call(withKey(withKey(t.Context())))
		invalidKeyRow.check(t, err, nil)
		// What came in to a server that is a client itself is no key of what goes out.
		_, err = call(metadata.NewIncomingContext(t.Context(), metadata.Pairs("product-id", secret)))
		invalidKeyRow.check(t, err, nil)
	})
}

func TestMistakesPanic(t *testing.T) {
	l := wllocktest.New(t)
	for want, mistakes := range map[string][]func(){
		"grpcguard: an interceptor needs a Locker and a key function": {
			func() { grpcguard.UnaryServerInterceptor(nil, "product", byPayload) },
			func() { grpcguard.StreamClientInterceptor(l, "product", nil) },
		},
		"grpcguard: an interceptor needs a Locker and a function that returns the keys": {
			func() { grpcguard.UnaryServerInterceptorAll(nil, allByPayload) },
			func() { grpcguard.StreamClientInterceptorAll(l, nil) },
		},
		`grpcguard: an interceptor: name "a product" has ' ' at byte 1, want letters, digits, and . _ / - only`: {
			func() { grpcguard.StreamServerInterceptor(l, "a product", byPayload) },
		},
		"grpcguard: an option of an interceptor is nil": {
			func() { grpcguard.UnaryClientInterceptor(l, "product", byPayload, nil) },
			func() { grpcguard.UnaryClientInterceptorAll(l, allByPayload, nil) },
		},
		"grpcguard: WithCallOptions: an option is nil": {func() { grpcguard.WithCallOptions(wllock.NoWait(), nil) }},
		"grpcguard: KeyFrom(nil): want a function":     {func() { grpcguard.KeyFrom[proto.Message](nil) }},
		"grpcguard: KeysFrom(nil): want a function":    {func() { grpcguard.KeysFrom[proto.Message](nil) }},
	} {
		for _, mistake := range mistakes {
			require.PanicsWithValue(t, want, mistake)
		}
	}
}
