// Command closebound closes Lockers.
package main

import (
	"context"
	"time"

	"github.com/wllock/wllock"
)

type service struct{ locks *wllock.Locker }

func (s *service) stop() error {
	return s.locks.Close(context.Background()) // want `Close waits without a bound for functions that hold locks: one that does not return keeps the process from ending. Pass a context with a deadline, as context.WithTimeout makes`
}

func later(l *wllock.Locker) {
	defer l.Close(context.TODO()) // want `Close waits without a bound`
}

func variable(l *wllock.Locker) error {
	ctx := context.Background()
	return l.Close(ctx) // want `Close waits without a bound`
}

var forever = context.Background()

func ofThePackage(l *wllock.Locker) error {
	return l.Close(forever) // want `Close waits without a bound`
}

// From here on nothing is wrong.

func bounded(l *wllock.Locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return l.Close(ctx)
}

func rebound(l *wllock.Locker) error {
	ctx := context.Background()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return l.Close(ctx)
}

func callers(ctx context.Context, l *wllock.Locker) error { return l.Close(ctx) }

func parents(parent context.Context, l *wllock.Locker) error {
	ctx := parent
	if ctx == nil {
		ctx = context.Background()
	}
	return l.Close(ctx)
}

func given(ctx context.Context, l *wllock.Locker) error {
	if ctx == nil {
		ctx = context.Background()
	}
	return l.Close(ctx)
}

func byAddress(l *wllock.Locker, limit func(*context.Context)) error {
	ctx := context.Background()
	limit(&ctx)
	return l.Close(ctx)
}

type Locker struct{} // of this package

func (Locker) Close(context.Context) error { return nil }

func another() error { return Locker{}.Close(context.Background()) }

func main() {
	ctx := context.Background()
	l, err := wllock.New("shop", nil)
	if err != nil {
		panic(err)
	}
	defer l.Close(ctx) // as README does
}
