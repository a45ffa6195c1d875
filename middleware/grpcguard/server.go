package grpcguard

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/heldkey"
)

// UnaryServerInterceptor runs a call under the lock with this name and the key that the function key makes from the call. The handler's context
// carries the lock (wllock.HeldFrom) and ends when the lock is lost. A panic releases the lock and continues.
//
// Like all interceptors of this package, it panics on invalid arguments, such as a name that no lock can have.
func UnaryServerInterceptor(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	return newGuard(locker, name, key, opts).unaryServer()
}

// UnaryServerInterceptorAll is UnaryServerInterceptor for several locks at once, as wllock's DoAll acquires them: all or none, in one order for
// all callers.
func UnaryServerInterceptorAll(locker *wllock.Locker, keys KeysFunc, opts ...Option) grpc.UnaryServerInterceptor {
	return newGuardAll(locker, keys, opts).unaryServer()
}

func (g *guard) unaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		locks, err := g.locksOf(ctx, info.FullMethod, req)
		if err != nil {
			return nil, sent(ctx, refuse(err))
		}
		refused, err := g.run(ctx, locks, func(ctx context.Context) (err error) {
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
	_ = grpc.SetTrailer(ctx, r.Trailer()) // fails only outside a server
	return r
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. If the key is in a message, or the call has one request, it acquires the lock
// when the first message has been received, otherwise before the handler starts. A guard inside one that waits for the message waits, too, so
// that the outer lock is acquired first. A stream of requests receives the others under the lock, and its client may not pause for longer than
// WithIdleTimeout. When that time has passed, or the lock is lost, or held for too long, the stream's context ends, and RecvMsg and SendMsg
// return at once, even if they wait for the client. Do not use their message after that.
//
// The stream has one context from its beginning. If the handler takes it before the first message, it still carries the lock later, and ends
// with it.
func StreamServerInterceptor(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	return newGuard(locker, name, key, opts).streamServer()
}

// StreamServerInterceptorAll is StreamServerInterceptor for several locks at once.
func StreamServerInterceptorAll(locker *wllock.Locker, keys KeysFunc, opts ...Option) grpc.StreamServerInterceptor {
	return newGuardAll(locker, keys, opts).streamServer()
}

func (g *guard) streamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		wanted, err := g.locksOf(ctx, info.FullMethod, nil)
		switch {
		case errors.Is(err, ErrNoMessage):
			return g.late(srv, ss, handler, func(m any) (locks, error) { return g.locksOf(ctx, info.FullMethod, m) })
		case err != nil:
			return sent(ctx, refuse(err))
		case !info.IsClientStream, ctx.Value(pending{}) != nil: // rule M4
			return g.late(srv, ss, handler, func(any) (locks, error) { return wanted, nil })
		}
		var s *heldStream
		refused, err := g.run(ctx, wanted, func(held context.Context) error {
			s = newHeldStream(ss, held, g.idle)
			return handler(srv, s)
		})
		if s != nil {
			if refused == nil {
				refused = s.over(err)
			}
			s.end(nil)
		}
		if refused != nil {
			return sent(ctx, refused)
		}
		return err
	}
}

// late runs a handler that has the lock from its first message on.
func (g *guard) late(srv any, ss grpc.ServerStream, handler grpc.StreamHandler, locksOf func(m any) (locks, error)) (err error) {
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel() // ends a wait for the lock that is still going on
	s := &lateServerStream{ServerStream: ss, ctx: ctx, guard: g, locksOf: locksOf}
	s.seen.s = s
	s.seen.Context, s.seen.end = context.WithCancelCause(ctx)
	defer func() { // rule M3: also after a panic, which continues
		if refused := s.end(err); refused != nil {
			err = sent(ss.Context(), refused)
		}
	}()
	return handler(srv, s)
}

// lateServerStream acquires the lock when its first message has been received. A goroutine of the handler may receive that while the handler
// returns. The end and the lock meet under mu: a lock that comes first is released by the end, one that comes later is
// released at once.
type lateServerStream struct {
	grpc.ServerStream
	ctx     context.Context // the stream's, until the handler returns; acquire waits with it
	seen    lateContext     // below ctx
	guard   *guard
	locksOf func(m any) (locks, error)

	mu      sync.Mutex // guards what follows
	lock    *lock
	held    *heldStream // with the lock
	refused *refusal    // why the lock was not acquired
	ended   bool        // the handler has returned
}

// Context is the same from the beginning on.
func (s *lateServerStream) Context() context.Context { return &s.seen }

// lateContext is the context of a handler and of the interceptors inside a guard, whenever they take it. Once the stream has the lock, it
// has the values of the hold's context, and ends with that.
type lateContext struct {
	context.Context
	end context.CancelCauseFunc // ends Context
	s   *lateServerStream
}

// pending is the key under which a lateContext has its stream until that has the lock.
type pending struct{}

// Value implements context.Context.
func (c *lateContext) Value(key any) any {
	held, _ := c.s.got()
	switch {
	case held == nil && key == pending{}:
		return c.s
	case held == nil:
		return c.Context.Value(key)
	}
	v := held.ctx.Value(key)
	if _, is := v.(context.Context); is && key != heldkey.Key { // with its own key, package context asks for what can be canceled: that is c.Context
		return c.Context.Value(key)
	}
	return v
}

// AfterFunc lets package context derive from this context without a goroutine for each derived one.
func (c *lateContext) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// follow ends the context if that of the hold has ended.
func (c *lateContext) follow(held *heldStream) {
	if held.ctx.Err() != nil {
		c.end(context.Cause(held.ctx))
	}
}

// RecvMsg returns the first message when the lock has been acquired.
func (s *lateServerStream) RecvMsg(m any) error {
	held, refused := s.got()
	if refused != nil {
		return refused
	}
	if held != nil {
		defer s.seen.follow(held) // before the handler is told
		return held.RecvMsg(m)
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	var l *lock
	locks, err := s.locksOf(m)
	if err != nil {
		refused = refuse(err)
	} else {
		l, refused = s.guard.acquire(s.ctx, locks)
	}
	if refused = s.take(l, refused); refused != nil {
		return refused
	}
	return nil
}

// SendMsg ends with the hold, if there is one.
func (s *lateServerStream) SendMsg(m any) error {
	if held, _ := s.got(); held != nil {
		defer s.seen.follow(held)
		return held.SendMsg(m)
	}
	return s.ServerStream.SendMsg(m)
}

// got returns the result of the first message; both are nil before it.
func (s *lateServerStream) got() (*heldStream, *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, s.refused
}

// take keeps the result of the first message for end, unless that has run already. It returns why there is no lock.
func (s *lateServerStream) take(l *lock, refused *refusal) *refusal {
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.lock, s.refused = l, refused
		if l != nil {
			s.held = newHeldStream(s.ServerStream, l.inside, s.guard.idle)
		}
	}
	held := s.held
	s.mu.Unlock()
	if held != nil {
		context.AfterFunc(held.ctx, func() { s.seen.follow(held) })
	}
	if !ended || l == nil {
		return refused
	}
	_ = l.release() // nothing has run under it
	return refuse(context.Canceled)
}

// end ends the stream after the handler has returned err, and returns what replaces err, or nil.
func (s *lateServerStream) end(err error) *refusal {
	s.mu.Lock()
	s.ended = true
	l, held, refused := s.lock, s.held, s.refused
	s.mu.Unlock()
	if l == nil {
		return refused
	}
	if refused = l.end(err); refused == nil {
		refused = held.over(err)
	}
	held.end(nil)
	return refused
}
