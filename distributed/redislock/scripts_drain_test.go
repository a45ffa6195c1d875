package redislock

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// drain has everybody served, a client after the other: nothing is lost any more.
func (s *sequence) drain() []execution {
	if s.drainUntil.IsZero() {
		s.beginDrain()
	}
	if s.view.at(s.now.UnixMilli()).isForeign() {
		return []execution{{commands: [][]any{{"DEL", s.key}}}}
	}
	s.turn++
	c := s.clients[s.turn%clientCount]
	c.tick(s.now)
	r := s.pending(c)
	if r == nil {
		return nil
	}
	r.sent = s.now
	return []execution{{request: r, client: c}}
}

func (s *sequence) beginDrain() {
	s.note("drain")
	s.late = nil
	s.drainUntil = s.now.Add(s.drainBound())
	for _, c := range s.clients {
		c.wants = c.now != nil && c.now.state != leased && !c.now.nowait
	}
}

// drainBound is how long it may take until everybody is served: a lease whose holder has crashed expires, then each waiter
// that has crashed may be granted one, which it does not claim.
func (s *sequence) drainBound() time.Duration {
	longest, crashed := max(s.ttls[0], s.ttls[1], s.ttls[2]), s.made-clientCount
	return time.Duration(4+crashed) * longest
}

// pending is what a client does while the sequence drains.
func (s *sequence) pending(c *simClient) *simRequest {
	if a := c.now; a != nil && a.state == leased {
		c.now, c.out, c.wants = nil, nil, false
		c.leave(a, s.now)
	}
	switch {
	case len(c.tasks) > 0:
		return c.tasks[0]
	case c.out != nil:
	case c.now == nil && c.wants:
		s.enter(c, step{luck: 4}, nil) // exclusive, and waits
	case c.now == nil:
		return nil
	case c.now.state == waiting && s.now.Before(c.beatAt):
		return nil
	default:
		c.beatAt = s.now.Add(distributed.HeartbeatInterval(c.ttl))
		s.begin(c, step{what: 1})
	}
	return c.out
}

// done reports that everybody has been served, or fails the sequence.
func (s *sequence) done() bool {
	if s.failure != "" {
		return true
	}
	if s.drainUntil.IsZero() {
		return false
	}
	for _, c := range s.clients {
		if c.now != nil || c.wants || len(c.tasks) > 0 {
			if s.now.After(s.drainUntil) {
				s.fail("%s has not been served when all should be", c.instance)
			}
			return s.failure != ""
		}
	}
	return true
}

func (s *sequence) drainWait() int {
	shortest := min(s.ttls[0], s.ttls[1], s.ttls[2])
	return max(1, int(distributed.HeartbeatInterval(shortest)/clientCount/(tick/ticking)))
}
