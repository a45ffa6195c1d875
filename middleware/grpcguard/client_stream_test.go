package grpcguard_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestClientStreamOfManyRequests(t *testing.T) {
	l := wllocktest.New(t)
	c := start(t, &service{in: func(s grpc.ServerStream) error {
		for {
			if err := s.RecvMsg(&pb.StreamingInputCallRequest{}); err == io.EOF {
				return s.SendMsg(&pb.StreamingInputCallResponse{AggregatedPayloadSize: 7})
			} else if err != nil {
				return err
			}
		}
	}}, nil, streamClient(l, byMetadata))
	s, err := c.StreamingInputCall(withKey(t.Context()))
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, s.Send(&pb.StreamingInputCallRequest{}))
		require.EqualValues(t, 1, l.Stats().Total.Held)
	}
	resp, err := s.CloseAndRecv()
	require.NoError(t, err)
	require.EqualValues(t, 7, resp.GetAggregatedPayloadSize())
	require.Zero(t, l.Stats().Total.Held)
}

func TestClientStreamWithoutKey(t *testing.T) {
	l := wllocktest.New(t)
	c := start(t, &service{}, nil, streamClient(l, byMetadata))
	_, err := c.StreamingOutputCall(t.Context(), request)
	invalidKeyRow.check(t, err, nil)
	// The key of the first of many messages comes too late: the stream has been opened by then.
	c = start(t, &service{}, nil, streamClient(l, byPayload))
	_, err = c.FullDuplexCall(t.Context())
	row{codes.Internal, "LOCK_INTERNAL", false}.check(t, err, nil)
}

func TestClientStreamServerFails(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		c := start(t, &service{out: func(grpc.ServerStream) error { return status.Error(codes.DataLoss, "own") }}, nil, streamClient(l, key))
		s, err := c.StreamingOutputCall(withKey(t.Context()), request)
		require.NoError(t, err)
		_, err = s.Header()
		require.NoError(t, err)
		_, err = drain(s)
		require.Equal(t, codes.DataLoss, status.Code(err))
		require.Zero(t, l.Stats().Total.Held)
	})
}

func TestClientStreamThatIsNotOpened(t *testing.T) {
	l := wllocktest.New(t)
	guard := grpcguard.StreamClientInterceptor(l, "product", byPayload)
	broken := errors.New("broken")
	desc := &grpc.StreamDesc{ServerStreams: true}
	s, err := guard(t.Context(), desc, nil, "/x", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, broken
	})
	require.NoError(t, err)
	require.Equal(t, t.Context(), s.Context())
	_, err = s.Header()
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Error(t, s.RecvMsg(nil))
	require.Error(t, s.CloseSend())
	require.Nil(t, s.Trailer())
	require.Equal(t, broken, s.SendMsg(request))
	isFree(t, l)
}

// One goroutine may send while another receives. Before the request is sent it receives nothing, and never a half-open
// stream.
func TestClientStreamIsUsedWhileItsRequestIsSent(t *testing.T) {
	l := wllocktest.New(t)
	_, conn := startConn(t, &service{out: func(s grpc.ServerStream) error { return s.SendMsg(response) }}, nil, streamClient(l, byPayload))
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, pb.TestService_StreamingOutputCall_FullMethodName)
	require.NoError(t, err)
	received := make(chan error)
	go func() {
		err := s.RecvMsg(&pb.StreamingOutputCallResponse{})
		for status.Code(err) == codes.FailedPrecondition { // not sent yet
			err = s.RecvMsg(&pb.StreamingOutputCallResponse{})
		}
		received <- err
	}()
	require.NoError(t, s.SendMsg(request))
	require.NoError(t, s.CloseSend())
	require.NoError(t, <-received)
	_, err = drain(s)
	require.ErrorIs(t, err, io.EOF)
	isFree(t, l)
}

// Before the lock is acquired nothing is sent: the server does not see the call.
func TestClientStreamWaits(t *testing.T) {
	withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
		l := wllocktest.New(t)
		release := wllocktest.Hold(t, l, "product", secret)
		var seen atomic.Bool
		c := start(t, &service{out: func(grpc.ServerStream) error {
			seen.Store(true)
			return nil
		}}, nil, streamClient(l, key))
		done := make(chan error)
		go func() {
			s, err := c.StreamingOutputCall(withKey(context.Background()), request)
			if err == nil {
				_, err = drain(s)
			}
			done <- err
		}()
		waiting(t, l, 1)
		require.False(t, seen.Load())
		release()
		require.ErrorIs(t, <-done, io.EOF)
		require.True(t, seen.Load())
	})
}
