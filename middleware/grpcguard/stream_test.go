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
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

var (
	byMetadata = grpcguard.Metadata("product-id")
	request    = &pb.StreamingOutputCallRequest{Payload: payload}
	response   = &pb.StreamingOutputCallResponse{}
)

// keys are the two times at which the key of a stream is known.
var keys = map[string]grpcguard.KeyFunc{"metadata": byMetadata, "first message": byPayload}

func withKeys(t *testing.T, test func(t *testing.T, key grpcguard.KeyFunc)) {
	for name, key := range keys {
		t.Run(name, func(t *testing.T) { test(t, key) })
	}
}

// drain reads a stream to its end.
func drain(s grpc.ClientStream) (n int, err error) {
	for ; ; n++ {
		if err := s.RecvMsg(&pb.StreamingOutputCallResponse{}); err != nil {
			return n, err
		}
	}
}

func TestServerStreamHasTheLock(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		own := status.Error(codes.DataLoss, "own")
		answers := make(chan error, 2)
		c := start(t, &service{out: func(s grpc.ServerStream) error {
			h, ok := wllock.HeldFrom(s.Context())
			assert.True(t, ok)
			assert.Equal(t, "test:product:"+secret, h.Key())
			assert.EqualValues(t, 1, l.Stats().Total.Held)
			assert.NoError(t, s.SendMsg(response))
			return <-answers
		}}, streamServer(l, key))
		for _, want := range []error{nil, own} {
			answers <- want
			s, err := c.StreamingOutputCall(withKey(t.Context()), request)
			require.NoError(t, err)
			n, err := drain(s)
			require.Equal(t, 1, n)
			if want == nil {
				want = io.EOF
			}
			require.Equal(t, want.Error(), err.Error())
			isFree(t, l)
		}
	})
}

func TestServerBidiTakesTheLockWithTheFirstMessage(t *testing.T) {
	l := wllocktest.New(t)
	c := start(t, &service{both: func(s grpc.ServerStream) error {
		_, ok := wllock.HeldFrom(s.Context())
		assert.False(t, ok)
		for range 2 {
			if err := s.RecvMsg(&pb.StreamingOutputCallRequest{}); !assert.NoError(t, err) {
				return err
			}
			_, ok = wllock.HeldFrom(s.Context())
			assert.True(t, ok)
		}
		return nil
	}}, streamServer(l, byPayload))
	s, err := c.FullDuplexCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Send(request))
	require.NoError(t, s.Send(request))
	_, err = s.Recv()
	require.ErrorIs(t, err, io.EOF)
	isFree(t, l)
}

func TestServerStreamRefused(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		for name, test := range map[string]struct {
			key grpcguard.KeyFunc
			row row
		}{
			"held":          {key, heldRow},
			"empty":         {constant("", nil), invalidKeyRow},
			"empty message": {grpcguard.KeyFrom(func(*pb.StreamingOutputCallRequest) string { return "" }), invalidKeyRow},
		} {
			t.Run(name, func(t *testing.T) {
				l := wllocktest.New(t)
				wllocktest.Hold(t, l, "product", secret)
				c := start(t, &service{out: func(grpc.ServerStream) error {
					t.Error("called without the lock")
					return nil
				}}, streamServer(l, test.key, wllock.NoWait()))
				s, err := c.StreamingOutputCall(withKey(t.Context()), request)
				require.NoError(t, err)
				_, err = drain(s)
				test.row.check(t, err, s.Trailer())
			})
		}
	})
}

// A handler that ignores the refusal of its first message gets no further message, and its caller gets the refusal.
func TestServerStreamCannotIgnoreARefusal(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	c := start(t, &service{both: func(s grpc.ServerStream) error {
		for range 2 {
			heldRow.check(t, s.RecvMsg(&pb.StreamingOutputCallRequest{}), nil)
		}
		return nil
	}}, streamServer(l, byPayload, wllock.NoWait()))
	s, err := c.FullDuplexCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Send(request))
	_, err = s.Recv()
	heldRow.check(t, err, s.Trailer())
}

func TestServerStreamLost(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
		c := start(t, &service{out: func(s grpc.ServerStream) error {
			faults.Lose("product", secret)
			<-s.Context().Done()
			return nil
		}}, streamServer(l, key))
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		_, err = drain(s)
		lostRow.check(t, err, s.Trailer())
		isFree(t, l)
	})
}

func TestServerStreamHeldForTooLong(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		c := start(t, &service{out: func(s grpc.ServerStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		}}, streamServer(l, key, wllock.WithLockTimeMax(10*time.Millisecond)))
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		_, err = drain(s)
		lostRow.check(t, err, s.Trailer())
		isFree(t, l)
	})
}

func TestServerStreamClosedUnderTheHandler(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		c := start(t, &service{out: func(s grpc.ServerStream) error {
			closeUnder(l)
			<-s.Context().Done()
			return s.Context().Err()
		}}, streamServer(l, key))
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		_, err = drain(s)
		lostRow.check(t, err, s.Trailer())
	})
}

func TestCanceledStreamFreesTheLock(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		c := start(t, &service{out: func(s grpc.ServerStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		}}, streamServer(l, key))
		ctx, cancel := context.WithCancel(withKey(t.Context()))
		s, err := c.StreamingOutputCall(ctx, request)
		require.NoError(t, err)
		held(t, l, 1)
		cancel()
		left := time.Now()
		isFree(t, l)
		t.Logf("the lock was free after %v", time.Since(left).Round(time.Microsecond))
		testscope.InTime(t, time.Since(left), 50*time.Millisecond, "leaving")
		_, err = drain(s)
		require.Equal(t, codes.Canceled, status.Code(err))
	})
}

func TestCanceledStreamFreesItsPlace(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		wllocktest.Hold(t, l, "product", secret)
		c := start(t, &service{}, streamServer(l, key))
		ctx, cancel := context.WithCancel(withKey(t.Context()))
		_, err := c.StreamingOutputCall(ctx, request)
		require.NoError(t, err)
		waiting(t, l, 1)
		cancel()
		left := time.Now()
		waiting(t, l, 0)
		testscope.InTime(t, time.Since(left), 50*time.Millisecond, "leaving")
	})
}

func TestServerStreamPanicReleases(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		var seen any
		recovering := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer func() {
				seen = recover()
				err = errors.New("panic")
			}()
			return h(srv, ss)
		}
		c := start(t, &service{out: func(grpc.ServerStream) error { panic("boom") }}, []grpc.ServerOption{
			grpc.ChainStreamInterceptor(recovering, grpcguard.StreamServerInterceptor(l, "product", key))})
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		_, err = drain(s)
		require.Error(t, err)
		require.Equal(t, "boom", seen)
		isFree(t, l)
	})
}
