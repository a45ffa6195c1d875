package zklock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// sessions are those of a Backend: one for each TTL in use, which is one in most programs. A lease can not last longer than its
// session's time-out without the server, and a lock whose holder has died is not free before it; so the two are made equal.
type sessions struct {
	b *Backend

	mu     sync.Mutex
	all    []*session // guarded by mu
	closed bool       // guarded by mu
}

// connectBudget is what an Enter allows for a connection at least: its session may be new.
const connectBudget = time.Second

const (
	// maxSessions bounds the connections of a Backend whose callers use many TTLs, unless leases of more are held at a time.
	maxSessions = 8
	// listTimeout is that of the session for lists: long, as their answers may be.
	listTimeout = 30 * time.Second
)

// forTTL returns a session for leases of this TTL that can be used, and waits for it until ctx ends. With an error it returns the session
// that it has waited for, if there is one.
func (p *sessions) forTTL(ctx context.Context, ttl time.Duration) (*session, error) {
	wanted := p.b.set.timeout
	if wanted == 0 {
		wanted = ttl.Truncate(time.Millisecond)
	}
	s, err := p.find(wanted, false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(distributed.ClaimWindow(ttl), connectBudget))
	defer cancel()
	if err = s.await(ctx); err != nil {
		return s, err
	}
	if granted := s.timeout(); granted > ttl {
		return s, fmt.Errorf("%w: %v, and the server has granted %v: want a TTL (WithLeaseTTL) of at least that, or a server "+
			"with a smaller tickTime: %w: %w", ErrInvalidTTL, ttl, granted, distributed.ErrUnavailable, distributed.ErrRefused)
	}
	return s, nil
}

// any returns a session for a question that is about no lease.
func (p *sessions) any(ctx context.Context) (*session, error) {
	p.mu.Lock()
	var s *session
	if i := slices.IndexFunc(p.all, func(one *session) bool { return !one.lists }); i >= 0 {
		s = p.all[i]
	}
	p.mu.Unlock()
	if s == nil {
		wanted := p.b.set.timeout
		if wanted == 0 {
			wanted = DefaultSessionTimeout
		}
		var err error
		if s, err = p.find(wanted, false); err != nil {
			return nil, err
		}
	}
	return s, s.await(ctx)
}

// forLists returns the session for lists, over which no lease goes.
func (p *sessions) forLists(ctx context.Context) (*session, error) {
	s, err := p.find(listTimeout, true)
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx)
}

// find returns the session with this time-out, or opens it. If there are too many, the one with the longest time-out below it
// serves; below all of them, one that nobody uses is closed for it.
func (p *sessions) find(wanted time.Duration, lists bool) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, distributed.ErrClosed
	}
	var below *session
	count := 0
	for _, s := range p.all {
		switch {
		case s.lists != lists:
			continue
		case s.wanted == wanted:
			return s, nil
		case s.wanted < wanted && (below == nil || s.wanted > below.wanted):
			below = s
		}
		count++
	}
	if count >= maxSessions && below != nil {
		return below, nil
	}
	if count >= maxSessions {
		p.retireOne()
	}
	s, err := p.b.newSession(wanted, lists)
	if err == nil {
		p.all = append(p.all, s)
	}
	return s, err
}

// retireOne closes the session with the longest time-out of those that nobody uses, if there is one. The first serves questions. The caller
// holds mu.
func (p *sessions) retireOne() {
	var others []*session
	for _, s := range p.all {
		if !s.lists {
			others = append(others, s)
		}
	}
	others = others[1:]
	slices.SortFunc(others, func(a, b *session) int { return cmp.Compare(b.wanted, a.wanted) })
	for _, s := range others {
		if p.b.retire(s) {
			p.all = slices.DeleteFunc(p.all, func(one *session) bool { return one == s })
			s.stop()
			p.b.reap(s)
			return
		}
	}
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
	for until := time.Now().Add(closeGrace); !s.dead.idle() && !s.downAt.Load() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

// logger logs warnings.
type logger struct{ log *slog.Logger }

func (l logger) Warn(msg string, args ...any) { l.log.Warn(msg, args...) }
