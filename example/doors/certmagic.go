package doors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/wllock/wllock"
)

// CertMagic is a Storage of certmagic with other locks, system:Name:lock. One instance orders a certificate. The others wait, and find it in
// the Storage. Their wait has no limit: while the authority fails, the holder tries again for up to 30 days, under its lock.
//
// certmagic is not told that a lock was lost. A try that runs goes on, so two instances may order one certificate, which counts towards the
// authority's limits. The next try begins with the lock: see RenewLockLease. Unlock returns ErrLeaseLost, which certmagic logs.
type CertMagic struct {
	certmagic.Storage
	Locker *wllock.Locker
	Name   string // second part of the locks' names: "certmagic"

	mu   sync.Mutex
	held map[string][]*wllock.Lock // guarded by mu; by certmagic's name, the last one is held. Those before it were lost
}

// Lock implements certmagic.Locker.
func (c *CertMagic) Lock(ctx context.Context, name string) error { return c.acquire(ctx, name) }

// TryLock implements certmagic.TryLocker.
func (c *CertMagic) TryLock(ctx context.Context, name string) (bool, error) {
	err := c.acquire(ctx, name, wllock.NoWait())
	if errors.Is(err, wllock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// RenewLockLease implements certmagic.LockLeaseRenewer, which certmagic calls before each try. Leases are renewed without it. A lock that was
// lost is acquired again.
func (c *CertMagic) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	c.mu.Lock()
	locks := c.held[name]
	c.mu.Unlock()
	if n := len(locks); n > 0 && locks[n-1].Err() == nil {
		return nil
	}
	if err := c.acquire(ctx, name); err != nil {
		return err
	}
	_ = c.Unlock(ctx, name) // what was lost
	return nil
}

// Unlock implements certmagic.Locker. Of several locks of a name the first was lost, so that no caller ends another's lock.
func (c *CertMagic) Unlock(_ context.Context, name string) error {
	c.mu.Lock()
	locks := c.held[name]
	if len(locks) > 1 {
		c.held[name] = locks[1:]
	} else {
		delete(c.held, name)
	}
	c.mu.Unlock()
	if len(locks) == 0 {
		return fmt.Errorf("doors: certmagic: Unlock of %q without Lock", name)
	}
	return release(locks[0])
}

func (c *CertMagic) acquire(ctx context.Context, name string, opts ...wllock.CallOption) error {
	lock, err := c.Locker.Acquire(ctx, c.Name, keyOf(name), append(opts, wllock.WithLockTimeMax(0))...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[string][]*wllock.Lock{}
	}
	c.held[name] = append(c.held[name], lock)
	return nil
}
