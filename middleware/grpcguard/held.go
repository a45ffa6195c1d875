package grpcguard

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
)

// heldStream is a server's stream while it has the lock. Its context ends with the hold, and when the client idles.
type heldStream struct {
	grpc.ServerStream
	ctx     context.Context
	end     context.CancelCauseFunc
	idleMax time.Duration // 0: none
}

// errIdle ends the context of a heldStream.
var errIdle = errors.New("grpcguard: no message came for too long while the call held the lock")

func newHeldStream(s grpc.ServerStream, held context.Context, idleMax time.Duration) *heldStream {
	ctx, end := context.WithCancelCause(held)
	return &heldStream{ServerStream: s, ctx: ctx, end: end, idleMax: idleMax}
}

// Context carries the lock.
func (s *heldStream) Context() context.Context { return s.ctx }

// RecvMsg ends with the context.
func (s *heldStream) RecvMsg(m any) error {
	if s.idleMax > 0 {
		idle := time.AfterFunc(s.idleMax, func() { s.end(errIdle) }) // a message that comes at this moment may be returned, and is the last
		defer idle.Stop()
	}
	return s.exchange(func() error { return s.ServerStream.RecvMsg(m) })
}

// SendMsg ends with the context.
func (s *heldStream) SendMsg(m any) error {
	return s.exchange(func() error { return s.ServerStream.SendMsg(m) })
}

// over returns what a call gets that failed with err because the hold has ended, or its client idled; nil: neither was the reason.
func (s *heldStream) over(err error) *refusal {
	return refuse(cutShort(s.ServerStream.Context(), s.ctx, err))
}

// exchange receives or sends a message. gRPC cannot interrupt that, so it is on a goroutine, which ends at the latest when the handler
// has returned: gRPC then ends the stream. No other exchange follows one that was left, because the context has ended for good,
// and nobody uses its message. If the message and the end of the context meet, either may win.
func (s *heldStream) exchange(message func() error) error {
	if refused := s.over(s.ctx.Err()); refused != nil {
		return refused
	}
	left := make(chan stay, 1)
	go func() {
		var e stay
		defer func() {
			e.panicked = recover()
			left <- e
		}()
		e.err = message()
	}()
	select {
	case e := <-left:
		return e.end()
	case <-s.ctx.Done(): // rule M4
	}
	if refused := s.over(s.ctx.Err()); refused != nil {
		return refused
	}
	return (<-left).end() // the call itself has ended, and so has the exchange
}
