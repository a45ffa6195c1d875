package zklock

import (
	"cmp"
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

// connectBudget is what an Enter allows for a connection at least: its session may be new.
const connectBudget = time.Second

const (
	// lists is the kind of the session for lists, over which no lease goes.
	lists = "lists"
	// listTimeout is that of the session for lists: long, as their answers may be.
	listTimeout = 30 * time.Second
)

// forTTL returns a session for leases of this TTL that can be used, and waits for it until ctx ends.
func (b *Backend) forTTL(ctx context.Context, ttl time.Duration) (*session, error) {
	s, err := b.sessions.Find(driver.Class{TTL: cmp.Or(b.set.timeout, ttl.Truncate(time.Millisecond))})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(distributed.ClaimWindow(ttl), connectBudget))
	defer cancel()
	if err = s.await(ctx); err != nil {
		return nil, err
	}
	if granted := s.timeout(); granted > ttl {
		return nil, keyless.Errorf("%w: %v, and the server has granted %v: want a TTL (WithLeaseTTL) of at least that, or a server "+
			"with a smaller tickTime: %w: %w", ErrInvalidTTL, ttl, granted, distributed.ErrUnavailable, distributed.ErrRefused)
	}
	return s, nil
}

func (b *Backend) classOf(kind string) driver.Class {
	if kind == lists {
		return driver.Class{Kind: kind, TTL: listTimeout}
	}
	return driver.Class{Kind: kind, TTL: cmp.Or(b.set.timeout, DefaultSessionTimeout)}
}

// any returns a session of a kind for a question that is about no lease.
func (b *Backend) any(ctx context.Context, kind string) (*session, error) {
	s, err := b.sessions.Any(b.classOf(kind))
	if err == nil {
		err = s.await(ctx)
	}
	return s, err
}
