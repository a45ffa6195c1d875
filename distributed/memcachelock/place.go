package memcachelock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// place is a waiter: it reads the lock's item until it finds itself an owner.
type place struct {
	claim
	b       *Backend
	key     string
	granted chan distributed.Lease // holds one
	ctx     context.Context        // of poll
	cancel  context.CancelFunc
	polled  chan struct{} // closed at poll's end

	// Of poll alone:
	seen          sightings
	waited        time.Time // when the last question was sent that found no grant, or wrote a claim: the grant's period is younger
	claiming      time.Time // when the claim was made that is being written; zero: none
	turned        time.Time // when the owners were found to have changed
	ahead         int       // in the queue
	owner, wanted bool
	unsure        bool // the last question was not answered; also of leave, after poll's end
}

// wait returns a place of a queued claim; nil: the Backend is closed.
func (b *Backend) wait(key string, c claim, start time.Time) *place {
	p := &place{
		claim: c, b: b, key: key, granted: make(chan distributed.Lease, 1), polled: make(chan struct{}),
		seen: sightings{}, waited: start, turned: start,
	}
	p.ctx, p.cancel = context.WithCancel(b.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.places[p] = struct{}{}
	b.tasks.Go(p.poll)
	return p
}

func (p *place) poll() {
	defer close(p.polled)
	for pause(p.ctx, p.interval(time.Now())) {
		err := p.b.change(p.ctx, p.key, nil, p.step)
		p.unsure = err != nil && unanswered(err)
		if err == nil && p.owner {
			p.written()
			p.deliver()
			return
		}
	}
}

const (
	// shortestPoll is a few round trips. Each place ahead adds as much, so that a crowd asks no more often than a few.
	shortestPoll = time.Millisecond
	// longestPoll is the longest that a hand-over takes, though T/6 may be longer.
	longestPoll = 250 * time.Millisecond
	// pollShare of the time since the last hand-over passes between two questions: the longer a holder works, the less a late
	// hand-over costs in comparison.
	pollShare = 8
)

// interval is the time until the next question; an owner that may be dead is not left waiting for.
func (p *place) interval(now time.Time) time.Duration {
	d := max(now.Sub(p.turned)/pollShare, shortestPoll*time.Duration(1+p.ahead))
	d = min(d, distributed.HeartbeatInterval(p.TTL), longestPoll)
	for _, s := range p.seen {
		d = min(d, max(s.at.Add(s.period).Sub(now), shortestPoll))
	}
	return d
}

// step takes out dead owners, queues p again if the item was lost and the queue with it, and claims a grant that may be old: a
// server that did not answer may have given it long ago. The claim counts when it is written: until then the others count from the beat
// before, and by that take out an owner.
func (p *place) step(s *state, sent time.Time) (changed bool) {
	now := time.Now()
	p.claiming = time.Time{}
	if i := index(s.Owners, p.ID); i < 0 {
		p.waited = sent
		reaped := p.seen.reap(s, now)
		changed = s.take(p.claim, false) || reaped
	} else if now.Sub(p.waited) > distributed.ClaimWindow(p.TTL)/2 {
		s.Owners[i].Beat++
		p.claiming, changed = now, true
	}
	p.owner = index(s.Owners, p.ID) >= 0
	if ahead := max(index(s.Queue, p.ID), 0); ahead != p.ahead || changed {
		p.turned, p.ahead = now, ahead
	}
	p.wanted = s.wanted(p.Instance)
	return changed
}

// written notes that the last step was carried out.
func (p *place) written() {
	if !p.claiming.IsZero() {
		p.waited = p.claiming
	}
}

func (p *place) deliver() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if _, waits := p.b.places[p]; waits { // else the one that leaves waits for poll, and removes the claim
		delete(p.b.places, p)
		p.granted <- p.b.keep(p.key, p.claim, p, p.waited, p.wanted)
	}
}

// Granted implements distributed.Place.
func (p *place) Granted() <-chan distributed.Lease { return p.granted }

// retract takes back an unread grant. The channel decides against the receiver.
func (p *place) retract() bool {
	select {
	case l, ok := <-p.granted:
		if ok {
			l.(*lease).Finish()
		}
		return ok
	default:
		return false
	}
}

// Leave implements distributed.Place. It ignores ctx, as Release does.
func (p *place) Leave(context.Context) error {
	p.b.mu.Lock()
	_, waits := p.b.places[p]
	delete(p.b.places, p)
	p.b.mu.Unlock()
	if !waits && !p.retract() {
		return nil
	}
	err := p.leave()
	if err != nil {
		p.b.task(func() { p.b.drop(p.key, p.claim) })
	}
	return err
}

// leave removes the claim after poll's end, which might queue it again.
func (p *place) leave() error {
	p.cancel()
	<-p.polled
	return p.b.change(p.b.ctx, p.key, nil, func(s *state, _ time.Time) bool {
		if p.unsure {
			return s.withdraw(p.ID)
		}
		return s.remove(p.ID)
	})
}
