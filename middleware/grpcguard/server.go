package grpcguard

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/wllock/wllock"
)

// UnaryServerInterceptor lets a call in when it has the lock name and the key that is made of the call. The handler's
// context has the lock (wllock.HeldFrom) and ends when the lock is lost. A panic releases the lock and goes on.
func UnaryServerInterceptor(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	g := newGuard(locker, name, key, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		key, err := g.keyOf(ctx, info.FullMethod, req)
		if err != nil {
			return nil, sent(ctx, refuse(err))
		}
		refused, err := g.run(ctx, key, func(ctx context.Context) (err error) {
			resp, err = handler(ctx, req)
			return err
		})
		if refused != nil {
			return nil, sent(ctx, refused)
		}
		return resp, err
	}
}

// sent adds the trailer of a refusal to the answer.
func sent(ctx context.Context, r *refusal) error {
	_ = grpc.SetTrailer(ctx, r.Trailer()) // fails only outside of a server
	return r
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. If the key is in a message, the lock is taken when the
// first one has come; else before the handler begins.
func StreamServerInterceptor(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	g := newGuard(locker, name, key, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		key, err := g.keyOf(ctx, info.FullMethod, nil)
		if errors.Is(err, ErrNoMessage) {
			return g.late(srv, ss, info, handler)
		}
		if err != nil {
			return sent(ctx, refuse(err))
		}
		refused, err := g.run(ctx, key, func(held context.Context) error {
			return handler(srv, &guardedStream{ServerStream: ss, ctx: held})
		})
		if refused != nil {
			return sent(ctx, refused)
		}
		return err
	}
}

// guardedStream is a stream with the lock's context.
type guardedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *guardedStream) Context() context.Context { return s.ctx }

// late runs a handler whose first message has the key.
func (g *guard) late(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	s := &lateServerStream{ServerStream: ss, guard: g, method: info.FullMethod}
	defer func() { // also after a panic, which goes on
		refused := s.refused
		if l := s.lock.Load(); l != nil {
			refused = l.end(err)
		}
		if refused != nil {
			err = sent(ss.Context(), refused)
		}
	}()
	return handler(srv, s)
}

// lateServerStream takes the lock with its first message.
type lateServerStream struct {
	grpc.ServerStream
	guard   *guard
	method  string
	lock    atomic.Pointer[lock] // set by RecvMsg; Context may be called beside it
	refused *refusal             // of RecvMsg; read there and when the handler has returned
}

// Context has the lock once the first message has come.
func (s *lateServerStream) Context() context.Context {
	if l := s.lock.Load(); l != nil {
		return l.Context()
	}
	return s.ServerStream.Context()
}

// RecvMsg returns the first message when the lock is had.
func (s *lateServerStream) RecvMsg(m any) error {
	if s.refused != nil {
		return s.refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || s.lock.Load() != nil {
		return err
	}
	ctx := s.ServerStream.Context()
	key, err := s.guard.keyOf(ctx, s.method, m)
	if err != nil {
		s.refused = refuse(err)
		return s.refused
	}
	l, refused := s.guard.acquire(ctx, key)
	if refused != nil {
		s.refused = refused
		return refused
	}
	s.lock.Store(l)
	return nil
}
