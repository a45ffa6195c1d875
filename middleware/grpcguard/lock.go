package grpcguard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock"
)

// releaseWait bounds the wait for the backend's answer to a release. The lock is given up all the same.
const releaseWait = 5 * time.Second

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
	return &lock{Lock: l, outside: ctx, release: sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait) // the stream's is over, perhaps
		defer cancel()
		if err := l.Release(ctx); errors.Is(err, wllock.ErrLeaseLost) {
			return err
		}
		return nil // without an answer the lease runs out, which is no failure of the call's
	})}, nil
}

// end releases the lock at the end of a call that returned err, and says whether the lock was kept.
func (l *lock) end(err error) *refusal {
	lost := l.release()
	if lost == nil {
		lost = cutShort(l.outside, l.Context(), err)
	}
	return refuse(lost)
}
