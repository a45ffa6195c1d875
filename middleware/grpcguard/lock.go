package grpcguard

import (
	"context"
	"errors"
	"sync"

	"github.com/wllock/wllock"
)

// lock is that of a stream, which does not begin and end in one function.
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

// release gives a lock up as a guard of a function does: the backend is told in the background, unless SyncRelease is
// asked for. Whether the lock was kept is known here, and the caller's end of stream would wait for the answer with us.
// Lock.Release waits for it if it is the last to leave the hold; inside a Do, which is nested in the hold, that is Do.
func (g *guard) release(l *wllock.Lock, key string) error {
	ctx, cancel := context.WithCancel(l.Context())
	cancel() // nobody waits
	err := g.locker.Do(ctx, g.name, key, l.Release, g.calls...)
	if lost := l.Release(ctx); lost != nil { // nothing more can be nested in a lock that is lost: Do has not run it
		err = lost
	}
	if errors.Is(err, wllock.ErrLeaseLost) {
		return err
	}
	return nil
}

// end releases the lock at the end of a call that returned err, and says whether the lock was kept.
func (l *lock) end(err error) *refusal {
	lost := l.release()
	if lost == nil {
		lost = cutShort(l.outside, l.Context(), err)
	}
	return refuse(lost)
}
