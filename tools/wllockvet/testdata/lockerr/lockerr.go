// Package lockerr has calls whose errors are looked at, or not.
package lockerr

import (
	"context"
	"errors"
	"log"
	"sync"

	"github.com/wllock/wllock"
)

func work(ctx context.Context) error { return ctx.Err() }

func count(ctx context.Context) (int, error) { return 1, ctx.Err() }

func mistakes(ctx context.Context, l *wllock.Locker, both []wllock.Resource) {
	l.Do(ctx, "product", "1", work)                       // want `the error of Do is ignored: it alone says that the lock was not acquired and the function did not run, or that the lock was lost. Return it, or log it`
	_ = l.Do(ctx, "product", "1", work)                   // want `the error of Do is assigned to _`
	l.DoAll(ctx, both, work)                              // want `the error of DoAll is ignored`
	n, _ := wllock.Call(ctx, l, "product", "1", count)    // want `the error of Call is assigned to _`
	var m, _ = wllock.Call(ctx, l, "product", "1", count) // want `the error of Call is assigned to _`
	log.Print(n, m)
	go l.Lead(ctx, "leader", "outbox", work) // want `the error of Lead is lost with its goroutine: .* Call it in a function that logs the error, and start that`
	defer l.Do(ctx, "product", "1", work)    // want `the error of Do is lost when the function returns: .* Call it in a deferred function that looks at the error`
	l.Guard("product", "1", work)(ctx)       // want `the error of the guarded function is ignored`
	guarded := l.GuardAll(both, work)
	guarded(ctx) // want `the error of guarded is ignored`
	buy := wllock.Wrap(l, "product", func(id string) string { return id }, func(ctx context.Context, id string) (int, error) { return count(ctx) })
	_, _ = buy(ctx, "1")                      // want `the error of buy is assigned to _`
	lock, _ := l.Acquire(ctx, "product", "1") // want `the error of Acquire is assigned to _: if the lock is not acquired, the Lock is nil, and its methods panic. Return it, or log it`
	defer lock.Release(ctx)
}

// From here on nothing is wrong.

func looks(ctx context.Context, l *wllock.Locker) (err error) {
	if err := l.Do(ctx, "product", "1", work); errors.Is(err, wllock.ErrHeld) {
		return nil
	}
	err = l.Do(ctx, "product", "1", work)
	defer func() { err = errors.Join(err, l.Do(ctx, "product", "1", work)) }()
	var all sync.WaitGroup
	all.Go(func() {
		if err := l.Lead(ctx, "leader", "outbox", work); err != nil {
			log.Print(err)
		}
	})
	all.Wait()
	for l.Do(ctx, "product", "1", work) != nil {
		continue
	}
	_, err = wllock.Call(ctx, l, "product", "1", count)
	return l.Guard("product", "1", work)(ctx)
}

func another(ctx context.Context, l *wllock.Locker) error {
	var once sync.Once
	once.Do(func() {})
	_ = work(ctx)
	unguarded := work
	unguarded(ctx)
	lock, err := l.Acquire(ctx, "product", "1")
	if err != nil {
		return err
	}
	defer lock.Release(ctx) // its error is for those who want to know
	return work(lock.Context())
}
