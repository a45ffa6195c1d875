package testlocker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Victims are two instances of one system, which another's user attacks.
type Victims struct {
	One, Other distributed.Backend
	Key        string // one has it, and the other waits for it
	Load       string // both want it all the time
}

const (
	Holder, Waiter = "one", "other" // the instances

	victimTTL = time.Minute
	patience  = 10 * time.Second
	// mostAhead is how far a fence may be ahead of the clock; a forged one would be years ahead.
	mostAhead = time.Hour
)

// Undisturbed runs an attack, of which nothing is to be noticed: the lease and the place stay, the locks are passed on before, during and
// after it, and fences grow and do not leap. It returns the longest wait for the lock under load.
func (v Victims) Undisturbed(t *testing.T, attack func(held distributed.Lease, place distributed.Place)) (longest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	load := &contention{key: v.Load, turns: make(chan struct{})}
	load.wg.Go(func() { load.run(ctx, v.One, Holder) })
	load.wg.Go(func() { load.run(ctx, v.Other, Waiter) })
	defer func() { // also if the attack ends the test
		cancel()
		load.wg.Wait()
		if load.err != nil {
			t.Error(load.err)
		}
		longest = load.longest
	}()
	goesOn := func() {
		t.Helper()
		for range 10 {
			select {
			case <-load.turns:
			case <-time.After(patience):
				t.Fatal("the load stands still")
			}
		}
	}
	goesOn()
	held := Asker{t, v.One, v.Key, victimTTL}.Lease(Holder)
	defer func() { _ = held.Release(context.Background()) }()
	place := Asker{t, v.Other, v.Key, victimTTL}.Place(Waiter)
	last, err := fenceAfter(0, held)
	if err != nil {
		t.Fatal(err)
	}

	attack(held, place)

	goesOn()
	if len(place.Granted()) > 0 || !held.Healthy() {
		t.Fatalf("a second holder: %t, the first is healthy: %t", len(place.Granted()) > 0, held.Healthy())
	}
	Release(t, held)
	next := Granted(t, place)
	exceeds(t, next, last)
	Release(t, next)
	return longest
}

// contention is a lock that two instances want all the time.
type contention struct {
	key   string
	turns chan struct{} // told of each turn, if somebody listens
	wg    sync.WaitGroup

	mu      sync.Mutex
	last    uint64        // guarded by mu; the fence of the latest turn
	longest time.Duration // guarded by mu; wait for a turn
	err     error         // guarded by mu; the first
}

// run takes the lock again and again until ctx ends, or something is wrong.
func (c *contention) run(ctx context.Context, b distributed.Backend, instance string) {
	for ctx.Err() == nil {
		if err := c.turn(ctx, b, instance); err != nil && ctx.Err() == nil {
			c.mu.Lock()
			c.err = errors.Join(c.err, fmt.Errorf("under load: %w", err))
			c.mu.Unlock()
			return
		}
		select {
		case c.turns <- struct{}{}:
		default:
		}
	}
}

func (c *contention) turn(ctx context.Context, b distributed.Backend, instance string) error {
	began := time.Now()
	l, p, err := enter(ctx, b, victim(c.key, instance))
	if err != nil {
		return err
	}
	if p != nil {
		select {
		case l = <-p.Granted():
		case <-ctx.Done():
			return p.Leave(context.Background())
		}
		if l == nil {
			return errors.New("a place was lost")
		}
	}
	c.mu.Lock()
	c.longest = max(c.longest, time.Since(began))
	last := c.last
	c.mu.Unlock()
	fence, err := fenceAfter(last, l)
	c.mu.Lock()
	c.last = max(c.last, fence)
	c.mu.Unlock()
	if err == nil && !l.Healthy() {
		err = errors.New("a lease was lost")
	}
	released := l.Release(context.Background())
	if errors.Is(released, distributed.ErrUnavailable) && !errors.Is(released, distributed.ErrRefused) {
		released = nil // late on a busy machine; it is released
	}
	return errors.Join(err, released)
}

func victim(key, instance string) distributed.Request {
	return distributed.Request{Key: key, Instance: instance, TTL: victimTTL}
}

// enter goes on where a busy machine made an answer late.
func enter(ctx context.Context, b distributed.Backend, req distributed.Request) (l distributed.Lease, p distributed.Place, err error) {
	for start := time.Now(); time.Since(start) < patience && ctx.Err() == nil; {
		l, p, err = b.Enter(ctx, req)
		if !errors.Is(err, distributed.ErrUnavailable) || errors.Is(err, distributed.ErrRefused) {
			break
		}
	}
	return l, p, err
}

// fenceAfter returns the next fence of a lease. The one before was last.
func fenceAfter(last uint64, l distributed.Lease) (fence uint64, err error) {
	fence, ok := l.NextFence()
	if !ok { // those of redlock are reserved by a question of their own
		err = l.Refill(context.Background())
		fence, ok = l.NextFence()
	}
	if !ok || fence <= last || fence > uint64(time.Now().Add(mostAhead).UnixNano()) {
		return last, errors.Join(err, fmt.Errorf("fence %d (there is one: %t) after %d", fence, ok, last))
	}
	return fence, nil
}
