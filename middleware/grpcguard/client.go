package grpcguard

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/grpcguard/internal/rpcstatus"
)

// UnaryClientInterceptor makes a call under the lock with this name and the key that the function key makes from the call. gRPC's own retries
// run under the same hold.
func UnaryClientInterceptor(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) grpc.UnaryClientInterceptor {
	return newGuard(locker, name, key, opts).unaryClient()
}

// UnaryClientInterceptorAll is UnaryClientInterceptor for several locks at once, as wllock's DoAll acquires them: all or none, in one order for
// all callers.
func UnaryClientInterceptorAll(locker *wllock.Locker, keys KeysFunc, opts ...Option) grpc.UnaryClientInterceptor {
	return newGuardAll(locker, keys, opts).unaryClient()
}

func (g *guard) unaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		locks, err := g.locksOf(asServer(ctx), method, req)
		if err != nil {
			return refuse(err)
		}
		refused, err := g.run(ctx, locks, func(ctx context.Context) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
		if refused != nil {
			return refused
		}
		return err
	}
}

// StreamClientInterceptor opens a stream under the lock, and holds the lock until the last RecvMsg. If the key is in a message, the stream must
// have a single request: sending it opens the stream.
func StreamClientInterceptor(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) grpc.StreamClientInterceptor {
	return newGuard(locker, name, key, opts).streamClient()
}

// StreamClientInterceptorAll is StreamClientInterceptor for several locks at once.
func StreamClientInterceptorAll(locker *wllock.Locker, keys KeysFunc, opts ...Option) grpc.StreamClientInterceptor {
	return newGuardAll(locker, keys, opts).streamClient()
}

func (g *guard) streamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		open := func(req any) (grpc.ClientStream, error) {
			locks, err := g.locksOf(asServer(ctx), method, req)
			if err != nil {
				return nil, refuse(err)
			}
			return g.open(ctx, locks, desc, func(ctx context.Context, finished grpc.CallOption) (grpc.ClientStream, error) {
				return streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], finished)...)
			})
		}
		stream, err := open(nil)
		if errors.Is(err, ErrNoMessage) && !desc.ClientStreams {
			return newLateClientStream(ctx, open), nil
		}
		return stream, err
	}
}

// open opens a stream under the lock. The lock is released once, by the first to learn that the stream has finished: a
// method of the stream, gRPC, or the caller's context.
func (g *guard) open(ctx context.Context, wanted locks, desc *grpc.StreamDesc,
	streamer func(ctx context.Context, finished grpc.CallOption) (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	l, refused := g.acquire(ctx, wanted)
	if refused != nil {
		return nil, refused
	}
	stop := context.AfterFunc(ctx, func() { _ = l.release() })
	stream, err := streamer(l.Context(), grpc.OnFinish(func(error) {
		stop()
		_ = l.release() // end calls it again and gets the same answer
	}))
	s := &clientStream{ClientStream: stream, lock: l, many: desc.ServerStreams}
	if err != nil {
		stop()
		return nil, s.end(err)
	}
	return s, nil
}

// clientStream is a stream that holds a lock.
type clientStream struct {
	grpc.ClientStream
	lock *lock
	many bool // several messages may be received
}

// RecvMsg releases the lock with the last message.
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.many {
		return nil
	}
	return s.end(err) // rule M6
}

// SendMsg releases the lock with an error that ends the stream. After io.EOF, RecvMsg returns how the stream ended.
func (s *clientStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err == nil || err == io.EOF {
		return err
	}
	return s.end(err)
}

// Header releases the lock with an error, which ends the stream.
func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil {
		err = s.end(err)
	}
	return md, err
}

// end releases the lock and returns the stream's error, or instead of it that the lock was lost.
func (s *clientStream) end(err error) error {
	failed := err
	if err == io.EOF { // success
		failed = nil
	}
	if refused := s.lock.end(failed); refused != nil {
		return refused
	}
	return err
}

// lateClientStream is opened when its only request is sent; RecvMsg may be called at the same time.
type lateClientStream struct {
	open func(req any) (grpc.ClientStream, error)
	now  atomic.Pointer[grpc.ClientStream] // unsent until SendMsg has opened a stream
}

func newLateClientStream(ctx context.Context, open func(req any) (grpc.ClientStream, error)) *lateClientStream {
	s := &lateClientStream{open: open}
	s.become(unsent{ctx})
	return s
}

func (s *lateClientStream) become(stream grpc.ClientStream) { s.now.Store(&stream) }
func (s *lateClientStream) stream() grpc.ClientStream       { return *s.now.Load() }

func (s *lateClientStream) Context() context.Context     { return s.stream().Context() }
func (s *lateClientStream) Header() (metadata.MD, error) { return s.stream().Header() }
func (s *lateClientStream) Trailer() metadata.MD         { return s.stream().Trailer() }
func (s *lateClientStream) CloseSend() error             { return s.stream().CloseSend() }
func (s *lateClientStream) RecvMsg(m any) error          { return s.stream().RecvMsg(m) }

// SendMsg opens the stream and sends its request.
func (s *lateClientStream) SendMsg(m any) error {
	if _, first := s.stream().(unsent); first {
		stream, err := s.open(m)
		if err != nil {
			return err
		}
		s.become(stream)
	}
	return s.stream().SendMsg(m)
}

// unsent is a stream before its request. Generated code never sees it.
type unsent struct{ ctx context.Context }

var errUnsent = rpcstatus.Plain(codes.FailedPrecondition, "the request, which contains the lock's key, has not been sent yet", nil)

func (u unsent) Context() context.Context   { return u.ctx }
func (unsent) Header() (metadata.MD, error) { return nil, errUnsent }
func (unsent) Trailer() metadata.MD         { return nil }
func (unsent) CloseSend() error             { return errUnsent }
func (unsent) SendMsg(any) error            { return errUnsent }
func (unsent) RecvMsg(any) error            { return errUnsent }
