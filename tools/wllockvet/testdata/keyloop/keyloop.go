// Package keyloop acquires locks of several keys.
package keyloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/wllock/wllock"
)

func work(ctx context.Context) error { return ctx.Err() }

func release(ctx context.Context, locks []*wllock.Lock) {
	for _, lock := range locks {
		_ = lock.Release(ctx)
	}
}

func appends(ctx context.Context, l *wllock.Locker, keys []string) (locks []*wllock.Lock, err error) {
	for _, key := range keys {
		lock, err := l.Acquire(ctx, "account", key) // want `each round of this loop acquires a lock and keeps it: two callers that have the keys in different orders wait for each other. DoAll acquires up to 64 keys in one order for all callers`
		if err != nil {
			release(ctx, locks)
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

func defers(ctx context.Context, l *wllock.Locker, keys []string) error {
	for i := 0; i < len(keys); i++ {
		lock, err := l.Acquire(ctx, "account", keys[i]) // want `each round of this loop acquires a lock and keeps it`
		if err != nil {
			return err
		}
		defer lock.Release(ctx)
	}
	return work(ctx)
}

func ofAnOrder(ctx context.Context, l *wllock.Locker, order struct{ Items []struct{ ID int64 } }) error {
	for n, item := range order.Items {
		key := fmt.Sprint("item ", item.ID)
		lock, err := l.Acquire(ctx, "product", key) // want `each round of this loop acquires a lock and keeps it`
		if err != nil {
			return fmt.Errorf("item %d: %w", n, err)
		}
		defer lock.Release(ctx)
	}
	return work(ctx)
}

func stores(ctx context.Context, l *wllock.Locker, keys map[string]bool) (err error) {
	locks := map[string]*wllock.Lock{}
	for key := range keys {
		locks[key], err = l.Acquire(ctx, "account", "of "+key) // want `each round of this loop acquires a lock and keeps it`
		if err != nil {
			return err
		}
	}
	return work(ctx)
}

func appendsReleases(ctx context.Context, l *wllock.Locker, keys []string) (undo []func() error, err error) {
	for _, key := range keys {
		lock, err := l.Acquire(ctx, "account", key) // want `each round of this loop acquires a lock and keeps it`
		switch {
		case err != nil:
			return undo, err
		default:
			undo = append(undo, func() error { return lock.Release(ctx) })
		}
	}
	return undo, nil
}

func wraps(ctx context.Context, l *wllock.Locker, keys []string, fn wllock.Func) error {
	for _, key := range keys {
		fn = l.Guard("account", key, fn) // want `each round of this loop puts a lock around the ones before: two callers that have the keys in different orders wait for each other`
	}
	return fn(ctx)
}

func wrapsByHand(ctx context.Context, l *wllock.Locker, keys []string, fn wllock.Func) error {
	for _, key := range keys {
		next := fn
		fn = func(ctx context.Context) error { return l.Do(ctx, "account", key, next) } // want `each round of this loop puts a lock around the ones before`
	}
	return fn(ctx)
}

func recurses(ctx context.Context, l *wllock.Locker, keys []string, fn wllock.Func) error {
	if len(keys) == 0 {
		return fn(ctx)
	}
	return l.Do(ctx, "account", keys[0], func(ctx context.Context) error { // want `the function calls itself for the next key inside this lock: two callers that have the keys in different orders wait for each other`
		return recurses(ctx, l, keys[1:], fn)
	})
}

func recursesInside(ctx context.Context, l *wllock.Locker, keys []string, fn wllock.Func) error {
	var from func(ctx context.Context, i int) error
	from = func(ctx context.Context, i int) error {
		if i == len(keys) {
			return fn(ctx)
		}
		return l.Do(ctx, "account", keys[i], func(ctx context.Context) error { return from(ctx, i+1) }) // want `the function calls itself for the next key inside this lock`
	}
	return from(ctx, 0)
}

// From here on nothing is wrong.

func oneByOne(ctx context.Context, l *wllock.Locker, keys []string) error {
	for _, key := range keys {
		if err := l.Do(ctx, "account", key, work); err != nil {
			return err
		}
	}
	return nil
}

func releases(ctx context.Context, l *wllock.Locker, keys []string) error {
	var held []*wllock.Lock
	for _, key := range keys {
		lock, err := l.Acquire(ctx, "account", key)
		if err != nil {
			return err
		}
		held = append(held, lock)
		err = errors.Join(work(lock.Context()), lock.Release(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}

func sorted(ctx context.Context, l *wllock.Locker, keys []string) (locks []*wllock.Lock, err error) {
	slices.Sort(keys)
	for _, key := range keys {
		lock, err := l.Acquire(ctx, "account", key)
		if err != nil {
			release(ctx, locks)
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

func claims(ctx context.Context, l *wllock.Locker, shards []string) (mine []*wllock.Lock) {
	for _, shard := range shards {
		if lock, err := l.Acquire(ctx, "shard", shard, wllock.NoWait()); err == nil {
			mine = append(mine, lock)
		}
	}
	return mine
}

func firstFree(ctx context.Context, l *wllock.Locker, shards []string) error {
	for _, shard := range shards {
		lock, err := l.Acquire(ctx, "shard", shard)
		if err != nil {
			continue
		}
		defer lock.Release(ctx)
		return work(lock.Context())
	}
	return nil
}

func retries(ctx context.Context, l *wllock.Locker, key string) error {
	for {
		lock, err := l.Acquire(ctx, "account", key)
		if errors.Is(err, wllock.ErrUnavailable) {
			continue
		}
		if err != nil {
			return err
		}
		defer lock.Release(ctx)
		break
	}
	return work(ctx)
}

func functions(ctx context.Context, l *wllock.Locker, keys []string) error {
	for _, key := range keys {
		if err := func() error {
			lock, err := l.Acquire(ctx, "account", key)
			if err != nil {
				return err
			}
			defer lock.Release(ctx)
			return work(lock.Context())
		}(); err != nil {
			return err
		}
	}
	return nil
}

func counted(ctx context.Context, l *wllock.Locker, shards int) (locks []*wllock.Lock, err error) {
	for i := range shards {
		key := strconv.Itoa(i)
		lock, err := l.Acquire(ctx, "shard", key)
		if err != nil {
			release(ctx, locks)
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

func listed(ctx context.Context, l *wllock.Locker) error {
	for _, key := range []string{"catalog", "stock"} {
		lock, err := l.Acquire(ctx, "table", key)
		if err != nil {
			return err
		}
		defer lock.Release(ctx)
	}
	return work(ctx)
}

func guards(l *wllock.Locker, keys []string) (all []wllock.Func) {
	for _, key := range keys {
		guarded := l.Guard("account", key, work)
		all = append(all, guarded)
	}
	return all
}

func all(ctx context.Context, l *wllock.Locker, keys []string) error {
	var accounts []wllock.Resource
	for _, key := range keys {
		accounts = append(accounts, wllock.Resource{Name: "account", Key: key})
	}
	return l.DoAll(ctx, accounts, work)
}

type node struct {
	id       string
	children []*node
}

func (n *node) lockDown(ctx context.Context, l *wllock.Locker) error { // from the root down, for all callers
	return l.Do(ctx, "node", n.id, func(ctx context.Context) error {
		for _, child := range n.children {
			if err := child.lockDown(ctx, l); err != nil {
				return err
			}
		}
		return nil
	})
}

func lockOrdered(ctx context.Context, l *wllock.Locker, keys []string, fn wllock.Func) error {
	slices.Sort(keys)
	return inOrder(ctx, l, keys, fn)
}

func inOrder(ctx context.Context, l *wllock.Locker, keys []string, fn wllock.Func) error {
	if len(keys) == 0 {
		return fn(ctx)
	}
	return l.Do(ctx, "account", keys[0], func(ctx context.Context) error { return inOrder(ctx, l, keys[1:], fn) })
}

func steps(ctx context.Context, l *wllock.Locker, key string, left []wllock.Func) error { // reentrant: one key
	if len(left) == 0 {
		return nil
	}
	return l.Do(ctx, "account", key, func(ctx context.Context) error {
		return errors.Join(left[0](ctx), steps(ctx, l, key, left[1:]))
	})
}

func tries(ctx context.Context, l *wllock.Locker, left int) error { // one key, again after a loss
	err := l.Do(ctx, "account", "1", work)
	if err != nil && left > 0 {
		return tries(ctx, l, left-1)
	}
	return err
}
