package etcdlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// sessions are those of a Backend: one for each TTL in use, which is one in most programs. A lock whose holder has died is free
// when the etcd lease has expired; so its TTL is that of the leases, in whole seconds.
type sessions struct {
	b *Backend

	mu     sync.Mutex
	all    []*session // guarded by mu
	closed bool       // guarded by mu
}

const (
	// connectBudget is what an Enter allows for a connection at least: its session may be new.
	connectBudget = openPatience
	// maxSessions bounds the etcd leases of a Backend whose callers use many TTLs. From ownSessions on a TTL is served by the longest
	// session below it, or by a new one of half of it. The last one is of shortestTTL, or what the server grants: that can serve all.
	ownSessions = 4
	maxSessions = 8
	shortestTTL = time.Second
	// defaultTTL is that of a session that is asked for before any lease was: by Ping.
	defaultTTL = 5 * time.Second
)

// forTTL returns a session for leases of this TTL that can be used, and waits for it until ctx ends.
func (p *sessions) forTTL(ctx context.Context, ttl time.Duration) (*session, error) {
	s, err := p.find(max(ttl.Truncate(time.Second), shortestTTL))
	if err != nil {
		return nil, err
	}
	if !s.isReady() {
		ctx, cancel := context.WithTimeout(ctx, max(distributed.ClaimWindow(ttl), connectBudget, p.b.set.patience))
		defer cancel()
		if err = s.await(ctx); err != nil {
			return nil, err
		}
	}
	if granted := s.ttl(); granted > ttl {
		return nil, fmt.Errorf("%w: %v, and the server grants at least %v, which is 1.5 times its election timeout in whole seconds: "+
			"want a TTL (WithLeaseTTL) of at least that: %w: %w", ErrInvalidTTL, ttl, granted, distributed.ErrUnavailable, distributed.ErrRefused)
	}
	return s, nil
}

// any returns a session for a question that is about no lease.
func (p *sessions) any(ctx context.Context) (*session, error) {
	p.mu.Lock()
	var s *session
	if len(p.all) > 0 {
		s = p.all[0]
	}
	p.mu.Unlock()
	if s == nil {
		var err error
		if s, err = p.find(defaultTTL); err != nil {
			return nil, err
		}
	}
	return s, s.await(ctx)
}

// find returns the session with this TTL, or opens it. If there are many, one with a shorter TTL serves.
func (p *sessions) find(wanted time.Duration) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, distributed.ErrClosed
	}
	var below *session
	for _, s := range p.all {
		if s.wanted == wanted {
			return s, nil
		}
		if s.wanted < wanted && (below == nil || s.wanted > below.wanted) {
			below = s
		}
	}
	switch {
	case len(p.all) < ownSessions:
	case below != nil:
		return below, nil
	case len(p.all) == maxSessions-1:
		wanted = shortestTTL
	default:
		wanted = max((wanted / 2).Truncate(time.Second), shortestTTL)
	}
	s := p.b.newSession(wanted)
	p.all = append(p.all, s)
	return s, nil
}

// drop forgets a session that is over: the next request opens another.
func (p *sessions) drop(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(one *session) bool { return one == s })
	if !p.closed {
		p.b.reap(s)
	}
}

// reap waits for the end of a session.
func (b *Backend) reap(s *session) {
	if b.begin() {
		go func() {
			defer b.tasks.Done()
			<-s.ended
		}()
	}
}

// close ends all sessions, after what is being deleted.
func (p *sessions) close() {
	p.mu.Lock()
	p.closed = true
	all := p.all
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			s.flush()
			s.stop()
			<-s.ended
		})
	}
	wg.Wait()
}

// flush waits for the deletions under way, for a while.
func (s *session) flush() {
	if !s.healthy(time.Now()) {
		return
	}
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-s.dead.rest():
	case <-timer.C:
	}
}
