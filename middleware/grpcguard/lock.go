package grpcguard

import (
	"context"
	"errors"
	"sync"

	"github.com/wllock/wllock"
)

// lock is the lock of a stream, or its several locks: they do not begin and end in one function.
type lock struct {
	inside  context.Context // carries the lock, and ends with it
	outside context.Context // the stream's own
	release func() error    // may be called repeatedly; returns an error if the lock was lost
}

func (l *lock) Context() context.Context { return l.inside }

func (g *guard) acquire(ctx context.Context, wanted locks) (*lock, *refusal) {
	if g.keys != nil {
		return g.acquireAll(ctx, wanted.all)
	}
	l, err := g.locker.Acquire(ctx, g.name, wanted.key, g.calls...)
	if err != nil {
		return nil, refuse(err)
	}
	return &lock{inside: l.Context(), outside: ctx, release: sync.OnceValue(func() error { return g.release(l, wanted.key) })}, nil
}

// acquireAll leaves the locks to a goroutine, which holds them until they are released; release waits for its end.
func (g *guard) acquireAll(ctx context.Context, all []wllock.Resource) (*lock, *refusal) {
	entered, leave, left := make(chan context.Context, 1), make(chan struct{}), make(chan stay, 1)
	go func() {
		var s stay
		defer func() {
			s.panicked = recover()
			left <- s
		}()
		s.err = g.locker.DoAll(ctx, all, func(inside context.Context) error {
			entered <- inside
			<-leave
			return nil
		}, g.calls...)
	}()
	select {
	case inside := <-entered:
		return &lock{inside: inside, outside: ctx, release: sync.OnceValue(func() error {
			close(leave)
			return lossIn((<-left).end())
		})}, nil
	case s := <-left: // it is not inside: it leaves only when it is told to
		return nil, refuse(s.end())
	}
}

// stay is how the goroutine of acquireAll has ended.
type stay struct {
	err      error
	panicked any
}

// end returns the error. A panic, a backend's, continues where gRPC and the caller's interceptors can recover it.
func (s stay) end() error {
	if s.panicked != nil {
		panic(s.panicked) // rule M3
	}
	return s.err
}

// release releases a lock as a guard of a function does: in the background, unless SyncRelease is set. Whether the lock was
// kept is known here, and the end of the stream should not wait for the backend. Lock.Release waits for the backend if it
// is the last to leave the hold; inside a Do that is nested in the hold, the last is Do.
func (g *guard) release(l *wllock.Lock, key string) error {
	ctx, cancel := context.WithCancel(l.Context())
	cancel() // rule M6: no wait
	err := g.locker.Do(ctx, g.name, key, l.Release, g.calls...)
	if lost := l.Release(ctx); lost != nil { // Do cannot nest in a lost lock, so it has not run Release
		err = lost
	}
	return lossIn(err)
}

// lossIn returns err if it says that the lock was lost.
func lossIn(err error) error {
	if errors.Is(err, wllock.ErrLeaseLost) {
		return err
	}
	return nil
}

// end releases the lock at the end of a call that returned err, and returns a refusal if the lock was lost.
func (l *lock) end(err error) *refusal {
	lost := l.release()
	if lost == nil {
		lost = cutShort(l.outside, l.inside, err)
	}
	return refuse(lost)
}
