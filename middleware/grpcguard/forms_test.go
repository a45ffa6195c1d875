package grpcguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

// form is a way to guard a call.
type form struct {
	server, stream, several bool
	key                     grpcguard.KeyFunc
	keys                    grpcguard.KeysFunc // of several locks
	outer                   []grpc.ServerOption
}

// withForms runs a test with the guard on each side, of unary calls and of streams, with one lock and with several: with those forms that are
// wanted. The key of a stream is known from the metadata, or from the first message.
func withForms(t *testing.T, wanted func(form) bool, test func(t *testing.T, f form)) {
	for i := range 8 {
		for when, key := range keys {
			f := form{server: i&1 > 0, stream: i&2 > 0, several: i&4 > 0, key: key, keys: allKeys[when]}
			if (f.stream || when == "first message") && wanted(f) {
				t.Run(fmt.Sprintf("server %t, stream %t, several %t, %s", f.server, f.stream, f.several, when), func(t *testing.T) { test(t, f) })
			}
		}
	}
}

func anyForm(form) bool         { return true }
func servers(f form) bool       { return f.server }
func clientStreams(f form) bool { return !f.server && f.stream }

// locks are those that a call has.
func (f form) locks() []wllock.Resource {
	if f.several {
		return locksOf(secret)
	}
	return locksOf(secret)[:1]
}

// guard returns the interceptors.
func (f form) guard(l *wllock.Locker, opts ...wllock.CallOption) (server []grpc.ServerOption, client []grpc.DialOption) {
	calls := grpcguard.WithCallOptions(opts...)
	switch {
	case f.server && f.several:
		return append(f.outer, grpc.ChainUnaryInterceptor(grpcguard.UnaryServerInterceptorAll(l, f.keys, calls)),
			grpc.ChainStreamInterceptor(grpcguard.StreamServerInterceptorAll(l, f.keys, calls))), nil
	case f.server:
		return append(f.outer, grpc.ChainUnaryInterceptor(grpcguard.UnaryServerInterceptor(l, "product", f.key, calls)),
			grpc.ChainStreamInterceptor(grpcguard.StreamServerInterceptor(l, "product", f.key, calls))), nil
	case f.several:
		return nil, []grpc.DialOption{grpc.WithUnaryInterceptor(grpcguard.UnaryClientInterceptorAll(l, f.keys, calls)),
			grpc.WithStreamInterceptor(grpcguard.StreamClientInterceptorAll(l, f.keys, calls))}
	}
	return nil, []grpc.DialOption{grpc.WithUnaryInterceptor(grpcguard.UnaryClientInterceptor(l, "product", f.key, calls)),
		grpc.WithStreamInterceptor(grpcguard.StreamClientInterceptor(l, "product", f.key, calls))}
}

// start runs a service whose handler is handle, and returns what calls it. If the server has the guard, its refusals have a trailer.
func (f form) start(t testing.TB, l *wllock.Locker, handle func(context.Context) error,
	opts ...wllock.CallOption) (call func(context.Context) (metadata.MD, error)) {
	t.Helper()
	server, client := f.guard(l, opts...)
	c := start(t, &service{unary: handle, out: func(s grpc.ServerStream) error {
		_ = s.SendMsg(response)
		return handle(s.Context())
	}}, server, client...)
	return func(ctx context.Context) (trailer metadata.MD, err error) {
		if f.stream {
			trailer, err = callStream(withKey(ctx), c)
		} else {
			trailer, err = callUnary(ctx, c)
		}
		if !f.server {
			return nil, err
		}
		return metadata.Join(trailer), err
	}
}

func callUnary(ctx context.Context, c pb.TestServiceClient) (trailer metadata.MD, err error) {
	resp, err := c.UnaryCall(ctx, simple, grpc.Trailer(&trailer))
	if err == nil && resp.GetUsername() != "done" {
		err = fmt.Errorf("another response: %v", resp)
	}
	return trailer, err
}

// callStream makes a call with one request and one response.
func callStream(ctx context.Context, c pb.TestServiceClient) (metadata.MD, error) {
	s, err := c.StreamingOutputCall(ctx, request)
	if err != nil {
		return nil, err
	}
	n, err := drain(s)
	if err == io.EOF && n == 1 {
		err = nil
	}
	return s.Trailer(), err
}

// Handlers behind the guard of a server have the locks. Those of a client's guard are held meanwhile, and are not theirs.
func TestHandlerHasTheLocks(t *testing.T) {
	withForms(t, anyForm, func(t *testing.T, f form) {
		l := wllocktest.New(t)
		answers := make(chan error, 1)
		call := f.start(t, l, func(ctx context.Context) error {
			assert.EqualValues(t, len(f.locks()), l.Stats().Total.Held)
			_, ok := wllock.HeldFrom(ctx)
			assert.Equal(t, f.server, ok)
			for _, lock := range f.locks() {
				if h, ok := wllock.HeldKey(ctx, lock.Name, lock.Key); assert.Equal(t, f.server, ok) && ok {
					assert.Equal(t, "test:"+lock.Name+":"+lock.Key, h.Key())
					assert.Positive(t, h.Fence())
				}
			}
			return <-answers
		})
		answers <- nil
		_, err := call(t.Context())
		require.NoError(t, err)
		isFree(t, l)

		own := status.Error(codes.DataLoss, "own")
		answers <- own
		_, err = call(t.Context())
		require.EqualError(t, err, own.Error())
		isFree(t, l)
	})
}

func TestRefusals(t *testing.T) {
	away := func(t testing.TB) *wllock.Locker {
		l, faults := wllocktest.NewWithFaults(t)
		faults.Partition()
		return l
	}
	silent := func(t testing.TB) *wllock.Locker {
		return testlocker.On(t, entering{memlock.New(), func(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			<-ctx.Done()
			return nil, nil, fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
		}})
	}
	closed := func(t testing.TB) *wllock.Locker {
		l := wllocktest.New(t)
		require.NoError(t, l.Close(t.Context()))
		return l
	}
	returns := func(err error, all ...wllock.Resource) grpcguard.KeysFunc {
		return func(context.Context, string, any) ([]wllock.Resource, error) { return all, err }
	}
	var many []wllock.Resource
	for i := range 65 {
		many = append(many, wllock.Resource{Name: "product", Key: string(rune('A' + i))})
	}
	long := strings.Repeat("x", 513)
	internal, unavailable := row{codes.Internal, "LOCK_INTERNAL", false}, row{codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", true}
	for name, test := range map[string]struct {
		locker func(t testing.TB) *wllock.Locker
		opts   []wllock.CallOption
		key    grpcguard.KeyFunc  // nil, where keys are not: no row of one lock
		keys   grpcguard.KeysFunc // nil: those of the call
		row    row
	}{
		"queue full": {taken, []wllock.CallOption{wllock.WithCallThreshold(0)}, nil, nil, row{codes.ResourceExhausted, "LOCK_QUEUE_FULL", true}},
		"wait timeout": {taken, []wllock.CallOption{wllock.WithWait(5 * time.Millisecond)}, nil, nil,
			row{codes.ResourceExhausted, "LOCK_WAIT_TIMEOUT", true}},
		"held":         {taken, []wllock.CallOption{wllock.NoWait()}, nil, nil, heldRow},
		"wrong option": {taken, []wllock.CallOption{wllock.WithWait(-1)}, nil, nil, internal},
		"fallback": {taken, []wllock.CallOption{wllock.NoWait(),
			wllock.WithFallback(func(context.Context, error) error { t.Error("called"); return nil })}, nil, nil, heldRow},
		"unavailable": {away, nil, nil, nil, unavailable},
		// That a short wait has timed out meanwhile does not hide that the backend is unreachable.
		"silent":        {silent, []wllock.CallOption{wllock.WithWait(10 * time.Millisecond)}, nil, nil, unavailable},
		"closed":        {closed, nil, nil, nil, row{codes.Unavailable, "LOCK_CLOSED", true}},
		"key too long":  {taken, nil, constant(long, nil), returns(nil, locksOf(long)...), invalidKeyRow},
		"key empty":     {taken, nil, constant("", nil), returns(nil, locksOf("")...), invalidKeyRow},
		"key error":     {taken, nil, constant("", errors.New(secret)), returns(errors.New(secret)), invalidKeyRow},
		"key not there": {taken, nil, grpcguard.Metadata("another-id"), returns(errors.New("none")), invalidKeyRow},
		"key of another type": {taken, nil, grpcguard.KeyFrom(func(*pb.Payload) string { return secret }),
			grpcguard.KeysFrom(func(*pb.Payload) []wllock.Resource { return locksOf(secret) }), invalidKeyRow},
		"empty message": {taken, nil, grpcguard.KeyFrom(func(payloader) string { return "" }),
			grpcguard.KeysFrom(func(payloader) []wllock.Resource { return nil }), invalidKeyRow},
		"too many keys": {taken, nil, nil, returns(nil, many...), invalidKeyRow},
		"a bad name":    {taken, nil, nil, returns(nil, wllock.Resource{Name: "a b", Key: "1"}), internal},
	} {
		t.Run(name, func(t *testing.T) {
			withForms(t, func(f form) bool { return f.several || test.key != nil || test.keys == nil }, func(t *testing.T, f form) {
				if test.keys != nil {
					f.key, f.keys = test.key, test.keys
				}
				trailer, err := f.start(t, test.locker(t), never(t), test.opts...)(t.Context())
				test.row.check(t, err, trailer)
				if !f.server && test.row == heldRow {
					require.ErrorIs(t, err, wllock.ErrHeld)
				}
			})
		})
	}
}

// A call takes one of the permits, beside others.
func TestPermits(t *testing.T) {
	withForms(t, func(f form) bool { return !f.several }, func(t *testing.T, f form) {
		l := wllocktest.New(t)
		call := f.start(t, l, func(context.Context) error { return nil }, wllock.Permits(2), wllock.NoWait())
		defer testlocker.Hold(t, l, "product", secret, wllock.Permits(2))()
		_, err := call(t.Context())
		require.NoError(t, err)
		defer testlocker.Hold(t, l, "product", secret, wllock.Permits(2))()
		trailer, err := call(t.Context())
		heldRow.check(t, err, trailer)
	})
}

// The lock ends during the call. Unlike a call that was not admitted, this one must not be retried: it may have done its work.
func TestLockEndsDuringTheCall(t *testing.T) {
	for name, test := range map[string]struct {
		opts  []wllock.CallOption
		end   func(l *wllock.Locker, faults *wllocktest.Faults)
		cause error
	}{
		"lost":         {nil, func(_ *wllock.Locker, faults *wllocktest.Faults) { faults.Lose("product", secret) }, wllock.ErrLeaseLost},
		"another lost": {nil, func(_ *wllock.Locker, faults *wllocktest.Faults) { faults.Lose("account", "1") }, wllock.ErrLeaseLost},
		"held for too long": {[]wllock.CallOption{wllock.WithLockTimeMax(10 * time.Millisecond)},
			func(*wllock.Locker, *wllocktest.Faults) {}, wllock.ErrLockTimeMax},
		"closed": {nil, func(l *wllock.Locker, _ *wllocktest.Faults) { closeUnder(l) }, wllock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			withForms(t, func(f form) bool { return f.several || name != "another lost" }, func(t *testing.T, f form) {
				ttl := wllock.DefaultLeaseTTL // a lease must not end before its lock
				if test.cause == wllock.ErrLeaseLost {
					ttl = 100 * time.Millisecond
				}
				l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(ttl))
				var runs atomic.Int32
				trailer, err := f.start(t, l, func(ctx context.Context) error {
					runs.Add(1)
					test.end(l, faults)
					<-ctx.Done() // a client ends the call whose lock has ended
					if f.server {
						assert.ErrorIs(t, context.Cause(ctx), test.cause)
					}
					if test.cause == wllock.ErrLeaseLost {
						return nil // as if all were well
					}
					return ctx.Err()
				}, test.opts...)(t.Context())
				lostRow.check(t, err, trailer)
				if !f.server {
					require.ErrorIs(t, err, test.cause)
					e, ok := errors.AsType[*wllock.Error](err)
					require.True(t, ok)
					require.True(t, e.Ran)
				}
				if f.server || test.opts == nil { // else the time may be over before the server has the call
					require.EqualValues(t, 1, runs.Load())
				}
				if test.cause != wllock.ErrClosed {
					isFree(t, l)
				}
			})
		})
	}
}

func TestCallerThatLeavesFreesItsPlace(t *testing.T) {
	withForms(t, anyForm, func(t *testing.T, f form) {
		l := taken(t)
		call := f.start(t, l, never(t))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := call(ctx)
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
		_, err := call(ctx)
		row{code: codes.DeadlineExceeded}.check(t, err, nil)
		waiting(t, l, 0)
	})
}

func TestCallerThatLeavesFreesItsLocks(t *testing.T) {
	withForms(t, anyForm, func(t *testing.T, f form) {
		l := wllocktest.New(t)
		begun, done := make(chan struct{}), make(chan error)
		call := f.start(t, l, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := call(ctx)
			done <- err
		}()
		<-begun
		require.EqualValues(t, len(f.locks()), l.Stats().Total.Held)
		cancel()
		left := time.Now()
		isFree(t, l)
		t.Logf("the lock was free after %v", time.Since(left).Round(time.Microsecond))
		testscope.InTime(t, time.Since(left), 50*time.Millisecond, "leaving")
		require.Equal(t, codes.Canceled, status.Code(<-done))
	})
}

func TestPanicReleases(t *testing.T) {
	withForms(t, servers, func(t *testing.T, f form) {
		l := wllocktest.New(t)
		var seen any
		recovering := func(run func() error) (err error) {
			defer func() { seen, err = recover(), errors.New("panic") }()
			return run()
		}
		f.outer = []grpc.ServerOption{
			grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				return nil, recovering(func() error { _, err := h(ctx, req); return err })
			}),
			grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
				return recovering(func() error { return h(srv, s) })
			}),
		}
		_, err := f.start(t, l, func(context.Context) error { panic("boom") })(t.Context())
		require.Error(t, err)
		require.Equal(t, "boom", seen)
		isFree(t, l)
	})
}

func TestClientStreamHoldsUntilItsLastMessage(t *testing.T) {
	withForms(t, clientStreams, func(t *testing.T, f form) {
		l := wllocktest.New(t)
		_, guard := f.guard(l)
		c := start(t, &service{out: func(s grpc.ServerStream) error {
			for range 3 {
				assert.NoError(t, s.SendMsg(response))
			}
			return nil
		}}, nil, guard...)
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		for range 3 {
			_, err = s.Recv()
			require.NoError(t, err)
			require.EqualValues(t, len(f.locks()), l.Stats().Total.Held)
		}
		for range 2 {
			_, err = s.Recv()
			require.ErrorIs(t, err, io.EOF)
			require.Zero(t, l.Stats().Total.Held)
		}
		isFree(t, l)
	})
}

// The ways in which a stream may end before its last message has been read.
func TestClientStreamThatIsDropped(t *testing.T) {
	for name, end := range map[string]func(cancel context.CancelFunc, conn *grpc.ClientConn){
		"cancelled":         func(cancel context.CancelFunc, _ *grpc.ClientConn) { cancel() },
		"cancelled at once": func(cancel context.CancelFunc, _ *grpc.ClientConn) { cancel() },
		"connection closed": func(_ context.CancelFunc, conn *grpc.ClientConn) { conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			withForms(t, clientStreams, func(t *testing.T, f form) {
				l := wllocktest.New(t)
				_, guard := f.guard(l)
				c, conn := startConn(t, &service{out: func(s grpc.ServerStream) error {
					_ = s.SendMsg(response)
					<-s.Context().Done()
					return nil
				}}, nil, guard...)
				ctx, cancel := context.WithCancel(withKey(t.Context()))
				defer cancel()
				s, err := c.StreamingOutputCall(ctx, request)
				require.NoError(t, err)
				if name != "cancelled at once" {
					_, err = s.Recv()
					require.NoError(t, err)
					require.EqualValues(t, len(f.locks()), l.Stats().Total.Held)
				}
				end(cancel, conn)
				isFree(t, l)
				held(t, l, 0)
			})
		})
	}
}
