// Package lostrelease acquires locks, and releases them or not.
package lostrelease

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/wllock/wllock"
)

func work(ctx context.Context) error { return ctx.Err() }

func never(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way from here to line 20: other callers of the key, and Close, wait until WithLockTimeMax has passed. Put defer lock.Release\(ctx\) behind the check of the error`
	if err != nil {
		return err
	}
	return work(lock.Context())
}

func afterAnError(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way from here to line 29`
	if err != nil {
		return err
	}
	if err := work(lock.Context()); err != nil {
		return err
	}
	return lock.Release(ctx)
}

func sameError(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way from here to line 41`
	if err == nil {
		err = work(ctx)
	}
	if err != nil {
		log.Print(err)
		return err
	}
	return lock.Release(ctx)
}

func inOneBranch(ctx context.Context, l *wllock.Locker, sell bool) {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way from here to line 57`
	switch {
	case errors.Is(err, wllock.ErrHeld):
		return
	case err != nil:
		log.Print(err)
		return
	case sell:
		lock.Release(ctx)
	}
}

func returnsTheContext(ctx context.Context, l *wllock.Locker) (context.Context, error) {
	var lock, err = l.Acquire(ctx, "product", "1") // want `the lock is not released on a way from here to line 64`
	if err != nil {
		return nil, err
	}
	return lock.Context(), nil
}

func nextRound(ctx context.Context, l *wllock.Locker, keys chan string) {
	for {
		lock, err := l.Acquire(ctx, "product", <-keys) // want `the lock is not released on a way from here to line 69`
		if err != nil {
			continue
		}
		if work(lock.Context()) == nil {
			lock.Release(ctx)
		}
	}
}

func inALiteral(l *wllock.Locker) func(context.Context) error {
	return func(ctx context.Context) error {
		lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way`
		if err == nil && lock.Fence() > 0 {
			return work(lock.Context())
		}
		return err
	}
}

func afterALoop(ctx context.Context, l *wllock.Locker, orders chan string) error {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way`
	if err != nil {
		return err
	}
	for order := range orders {
		select {
		case <-lock.Context().Done():
			return context.Cause(lock.Context())
		default:
			log.Print(order)
		}
	}
	return lock.Release(ctx)
}

func secondFails(ctx context.Context, l *wllock.Locker) error {
	first, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way`
	if err != nil {
		return err
	}
	second, err := l.Acquire(ctx, "product", "2")
	if err != nil {
		return err
	}
	defer first.Release(ctx)
	defer second.Release(ctx)
	return work(second.Context())
}

func onlyCompares(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way`
	if err == nil && lock != nil {
		return work(ctx)
	}
	return err
}

func eitherError(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1") // want `the lock is not released on a way`
	if err != nil || ctx.Err() != nil {
		return err
	}
	return lock.Release(ctx)
}

func blank(ctx context.Context, l *wllock.Locker) error {
	_, err := l.Acquire(ctx, "product", "1") // want `the Lock is assigned to _, so it cannot be released: other callers of the key, and Close, wait until WithLockTimeMax has passed. Keep it and release it, or use Do`
	return err
}

func alone(ctx context.Context, l *wllock.Locker) {
	l.Acquire(ctx, "product", "1") // want `the Lock is thrown away, so it cannot be released`
}

// From here on nothing is wrong.

func deferred(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	return work(lock.Context())
}

func inADeferredFunction(ctx context.Context, l *wllock.Locker) (err error) {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release(context.WithoutCancel(ctx))) }()
	return work(lock.Context())
}

func onEachPath(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	if err := work(lock.Context()); err != nil {
		return errors.Join(err, lock.Release(ctx))
	}
	return lock.Release(ctx)
}

func inAnElse(ctx context.Context, l *wllock.Locker) {
	if lock, err := l.Acquire(ctx, "product", "1"); err != nil {
		log.Print(err)
	} else {
		lock.Release(ctx)
	}
}

func allowsHeld(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1", wllock.NoWait())
	switch {
	case errors.Is(err, wllock.ErrHeld), errors.Is(err, wllock.ErrQueueFull):
		return nil
	case err != nil:
		return err
	}
	defer lock.Release(ctx)
	return work(lock.Context())
}

func allowsSome(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1", wllock.NoWait())
	if err != nil && !errors.Is(err, wllock.ErrHeld) {
		return err
	}
	if lock == nil {
		return nil
	}
	return lock.Release(ctx)
}

func unlessHeld(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1", wllock.NoWait())
	if !errors.Is(err, wllock.ErrHeld) {
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}
	return nil
}

func ofAnOuterFunction(ctx context.Context, l *wllock.Locker, retry func(func() error) error) (err error) {
	var lock *wllock.Lock
	if err := retry(func() (err error) {
		lock, err = l.Acquire(ctx, "product", "1")
		return err
	}); err != nil {
		return err
	}
	defer lock.Release(ctx)
	return work(lock.Context())
}

func tagged(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1")
	switch err {
	case nil:
		return lock.Release(ctx)
	case context.Canceled:
		return nil
	}
	return err
}

func ownPredicate(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1")
	if refused, ok := errors.AsType[*wllock.Error](err); ok && refused.RetryAfter > 0 {
		return nil
	}
	if failed(err) {
		return err
	}
	return lock.Release(ctx)
}

func failed(err error) bool { return err != nil }

func asksTheLock(ctx context.Context, l *wllock.Locker, exclusive bool) (err error) {
	var lock *wllock.Lock
	if exclusive {
		lock, err = l.Acquire(ctx, "product", "1")
	}
	err = errors.Join(err, work(ctx))
	if lock != nil {
		err = errors.Join(err, lock.Release(ctx))
	}
	return err
}

func remembersTheLock(ctx context.Context, l *wllock.Locker) (err error) {
	lock, _ := l.Acquire(ctx, "product", "1", wllock.NoWait()) // want `the error of Acquire is assigned to _`
	mine := lock != nil
	if mine {
		err = work(lock.Context())
	}
	if mine {
		err = errors.Join(err, lock.Release(ctx))
	}
	return err
}

func deferredBefore(ctx context.Context, l *wllock.Locker) (err error) {
	var lock *wllock.Lock
	defer func() {
		if lock != nil {
			lock.Release(ctx)
		}
	}()
	lock, err = l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	return work(lock.Context())
}

func ends(ctx context.Context, l *wllock.Locker) {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		log.Fatal(err)
	}
	if work(lock.Context()) != nil {
		os.Exit(1)
	}
	lock.Release(ctx)
}

func returns(ctx context.Context, l *wllock.Locker) (*wllock.Lock, error) {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return nil, err
	}
	return lock, nil
}

func namedResult(ctx context.Context, l *wllock.Locker) (lock *wllock.Lock, err error) {
	lock, err = l.Acquire(ctx, "product", "1")
	return
}

type session struct{ lock *wllock.Lock }

func passesOn(ctx context.Context, l *wllock.Locker, s *session, to chan *wllock.Lock) error {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	s.lock = lock
	other, err := l.Acquire(ctx, "product", "2")
	if err != nil {
		return err
	}
	to <- other
	s.lock, err = l.Acquire(ctx, "product", "3")
	return err
}

func inAGoroutine(ctx context.Context, l *wllock.Locker) error {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		lock.Release(context.WithoutCancel(ctx))
	}()
	return nil
}

func untilItWorks(ctx context.Context, l *wllock.Locker) error {
	for {
		lock, err := l.Acquire(ctx, "product", "1")
		if err != nil {
			continue
		}
		err = work(lock.Context())
		lock.Release(ctx)
		if err == nil {
			return nil
		}
	}
}

func adopts(ctx context.Context, l *wllock.Locker, token wllock.Token) error {
	lock, err := l.Adopt(ctx, token) // want `the lock is not released on a way from here to line 364`
	if err != nil {
		return err
	}
	if err := work(lock.Context()); err != nil {
		return err
	}
	return lock.Release(ctx)
}

func detaches(ctx context.Context, l *wllock.Locker) (wllock.Token, error) {
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return "", err
	}
	return lock.Detach(ctx, 60e9)
}
