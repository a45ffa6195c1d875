package grpcguard

import (
	"context"
	"errors"
	"sync"

	"github.com/wllock/wllock"
)

// lock is the lock of a stream, which does not begin and end in one function.
type lock struct {
	*wllock.Lock
	outside context.Context // the stream's own
	release func() error    // may be called repeatedly; returns an error if the lock was lost
}

func (g *guard) acquire(ctx context.Context, key string) (*lock, *refusal) {
	l, err := g.locker.Acquire(ctx, g.name, key, g.calls...)
	if err != nil {
		return nil, refuse(err)
	}
	return &lock{Lock: l, outside: ctx, release: sync.OnceValue(func() error { return g.release(l, key) })}, nil
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
	if errors.Is(err, wllock.ErrLeaseLost) {
		return err
	}
	return nil
}

// end releases the lock at the end of a call that returned err, and returns a refusal if the lock was lost.
func (l *lock) end(err error) *refusal {
	lost := l.release()
	if lost == nil {
		lost = cutShort(l.outside, l.Context(), err)
	}
	return refuse(lost)
}
