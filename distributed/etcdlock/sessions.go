package etcdlock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// connectBudget is what an Enter allows for a connection at least: its session may be new.
	connectBudget = openPatience
	// From ownSessions on a TTL is served by a shorter session, or by a new one of half of it, the last one by one of shortestTTL, or what the
	// server grants: that can serve all others. So there are never more than driver.MaxSessions etcd leases.
	ownSessions = 4
	shortestTTL = time.Second
	// defaultTTL is that of a session that is asked for before any lease was: by Ping.
	defaultTTL = 5 * time.Second
)

func shorter(ttl time.Duration, there int) time.Duration {
	if there >= driver.MaxSessions-1 {
		return shortestTTL
	}
	return max((ttl / 2).Truncate(time.Second), shortestTTL)
}

// forTTL returns a session for leases of this TTL, in whole seconds, that can be used, and waits for it until ctx ends.
func (b *Backend) forTTL(ctx context.Context, ttl time.Duration) (*session, error) {
	s, err := b.sessions.Find(driver.Class{TTL: max(ttl.Truncate(time.Second), shortestTTL)})
	if err != nil {
		return nil, err
	}
	if !s.isReady() {
		ctx, cancel := context.WithTimeout(ctx, max(distributed.ClaimWindow(ttl), connectBudget, b.set.patience))
		defer cancel()
		if err = s.await(ctx); err != nil {
			return nil, err
		}
	}
	if granted := s.ttl(); granted > ttl {
		return nil, keyless.Errorf("%w: %v, and the server grants at least %v, which is 1.5 times its election timeout in whole seconds: "+
			"want a TTL (WithLeaseTTL) of at least that: %w: %w", ErrInvalidTTL, ttl, granted, distributed.ErrUnavailable, distributed.ErrRefused)
	}
	return s, nil
}

// any returns a session for a question that is about no lease.
func (b *Backend) any(ctx context.Context) (*session, error) {
	s, err := b.sessions.Any(driver.Class{TTL: defaultTTL})
	if err == nil {
		err = s.await(ctx)
	}
	return s, err
}
