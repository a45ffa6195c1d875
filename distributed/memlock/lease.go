package memlock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/deadline"
)

// lease is an owner as the server knows it and, embedded, as its client knows it. The two learn of each other by calls
// only, so they can differ: a lease can be gone on the server and not be lost yet.
type lease struct {
	keepalive.Lease
	shard    *shard
	key      string
	instance string
	permit   bool // a shared lease with a limit: it has fences like an exclusive one
	ttl      time.Duration
	granted  time.Time
	id       uint64 // grows with each owner of a key
	place    *place // it was granted to; nil: by Enter itself. Set before anybody sees the lease, then read only

	// Guarded by shard.mu:
	entry     *entry           // while it is an owner
	mode      distributed.Mode // may change to Shared
	slot      int              // index in entry.owners
	state     leaseState
	releasing bool      // a release was tried during a partition; healing carries it out
	expires   time.Time // by the server
	item      deadline.Item[*lease]
	fence     uint64 // drawn last
	lastFence uint64 // of the block reserved

	firstFence uint64 // it was granted with this one
}

type leaseState uint8

const (
	owner    leaseState = iota
	released            // by its holder
	gone                // expired, or forgotten by Expire
)

// window is the time up to which the lease holds without a renewal.
func (l *lease) window() time.Time {
	return distributed.Validity(l.granted, distributed.ClaimWindow(l.ttl))
}

// keep starts the client side's lease. The claim is due at a third of its window, as later renewals are of theirs.
func (l *lease) keep() {
	claimAt := l.granted.Add(distributed.ClaimWindow(l.ttl) / 3)
	l.shard.keeper.Keep(&l.Lease, l, l.ttl, l.window(), claimAt)
}

// renew extends the lease by another T on the server. An unread grant is not claimed yet, since perhaps nobody will
// release it (rule K5).
func (l *lease) renew(now time.Time) {
	s := l.shard
	s.mu.Lock()
	if err := s.backend.reachable(); err != nil {
		s.mu.Unlock()
		l.Failed(err)
		return
	}
	if l.state == owner && l.place != nil && l.place.unread() {
		s.mu.Unlock()
		l.Postpone()
		return
	}
	if l.state != owner {
		s.mu.Unlock()
		l.End()
		return
	}
	l.expires = now.Add(l.ttl)
	s.expiry.Put(&l.item, l.expires)
	s.mu.Unlock()
	l.Renewed(distributed.Validity(now, l.ttl)) // rule K4
}

// NextFence implements distributed.Lease.
func (l *lease) NextFence() (uint64, bool) {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if l.hasOneFence() {
		return l.lastFence, true
	}
	if l.fence == l.lastFence {
		return 0, false
	}
	l.fence++
	return l.fence, true
}

// Refill implements distributed.Lease.
func (l *lease) Refill(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := l.refill()
	l.shard.backend.health.exchanged(err)
	return err
}

func (l *lease) refill() error {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if err := l.shard.backend.reachable(); err != nil {
		return err
	}
	if l.state != owner {
		return distributed.ErrLeaseLost // its successor may have drawn fences already
	}
	if !l.hasOneFence() {
		l.reserve()
	}
	return nil
}

// hasOneFence reports whether all callers of the lease have the same fence. The caller holds shard.mu.
func (l *lease) hasOneFence() bool { // rule P4
	return l.mode == distributed.Shared && !l.permit
}

// reserve takes fences off the shard: a block, or the one that a shared lease has. The caller holds shard.mu.
func (l *lease) reserve() {
	if l.hasOneFence() {
		l.shard.fence++
		l.lastFence = l.shard.fence
		return
	}
	if l.shard.fence != l.lastFence || l.fence == 0 {
		l.fence = l.shard.fence // not a continuation: others have taken fences since, the rest of our block is dropped
	}
	l.shard.fence += fenceBlock
	l.lastFence = l.shard.fence
}

// returnFences returns the rest of the block, if nobody has taken fences since. Without it the fences of a busy lock could
// run ahead of the clock, and start below their last value when the program is restarted. What a permit returns lies above
// all that others have: whoever had reserved since would have moved the shard's last one.
// The caller holds shard.mu.
func (l *lease) returnFences() {
	if l.hasOneFence() {
		return
	}
	if l.shard.fence == l.lastFence {
		l.shard.fence = l.fence
	}
	l.lastFence = l.fence
}

// Downgrade implements distributed.Lease.
func (l *lease) Downgrade(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := l.shard
	s.mu.Lock()
	defer s.unlock()
	if err := s.backend.reachable(); err != nil {
		return err
	}
	if l.state != owner {
		return distributed.ErrLeaseLost
	}
	if l.mode == distributed.Exclusive {
		l.returnFences()
		l.mode = distributed.Shared
		l.reserve()
		s.advance(l.entry)
	}
	return nil
}

// Release implements distributed.Lease. It ignores ctx: the answer is immediate, and a lock must not be kept because its
// caller has no time left.
func (l *lease) Release(context.Context) error { return l.release(l.Finish()) }

func (l *lease) release(held bool) error {
	l.shard.mu.Lock()
	err := l.shard.release(l)
	l.shard.unlock()
	l.shard.backend.health.exchanged(err)
	if !held {
		return distributed.ErrLeaseLost // also if the server had not noticed yet: it knows now
	}
	return err
}

// StartRelease implements distributed.Lease. The release is done, or has failed, when it returns.
func (l *lease) StartRelease() bool {
	err := l.release(l.Stop())
	if err != nil {
		l.Released(err)
	}
	return err == nil
}

// place is a position in the queue of a key.
type place struct {
	shard    *shard
	instance string
	mode     distributed.Mode
	limit    int // 0: none
	ttl      time.Duration
	since    time.Time              // when it was taken
	granted  chan distributed.Lease // holds one; sent to and closed under shard.mu, received from by anybody

	// Guarded by shard.mu:
	state      placeState
	entry      *entry // while it is queued
	prev, next *place
	lease      *lease // once it is granted
	left       bool   // Leave was called during a partition; healing carries it out
}

type placeState uint8

const (
	queued      placeState = iota
	undelivered            // granted by the server during a partition
	delivered              // sent into the channel
	ended                  // left or lost
)

// Granted implements distributed.Place.
func (p *place) Granted() <-chan distributed.Lease { return p.granted }

// deliver sends the grant to the client, at once or when the partition is healed. The caller holds shard.mu.
func (p *place) deliver() {
	switch {
	case p.state >= delivered:
	case p.shard.backend.cut.Load():
		p.state = undelivered
	default:
		p.state = delivered
		p.lease.keep()
		p.granted <- p.lease
	}
}

// unread reports whether a grant lies in the channel. While mu is held only its receiver can change the answer.
func (p *place) unread() bool { return p.state == delivered && len(p.granted) > 0 }

// retract takes back an unread grant. It reports false if there is none, or its receiver was first: then the lease is the
// receiver's. The caller holds shard.mu.
func (p *place) retract() bool {
	if p.state != delivered {
		return false
	}
	select {
	case <-p.granted:
		p.state = ended
		p.lease.Finish() // nobody watches it
		return true
	default:
		return false
	}
}

// lose closes the client's channel, unless it has left: its place is gone. The caller holds shard.mu.
func (p *place) lose() {
	p.state = ended
	if !p.left {
		close(p.granted)
	}
}

// Leave implements distributed.Place.
func (p *place) Leave(context.Context) error {
	s := p.shard
	s.mu.Lock()
	defer s.unlock()
	switch p.state {
	case queued:
		if err := s.backend.reachable(); err != nil {
			p.left = true
			return err
		}
		e := p.entry
		e.unlink(p)
		p.state = ended
		s.contend(e) // perhaps nobody waits any more
		s.advance(e) // readers may have been queued behind a writer
	case undelivered:
		p.left = true
		return s.backend.reachable()
	case delivered:
		if p.retract() {
			if err := s.release(p.lease); err != distributed.ErrLeaseLost {
				return err
			}
		}
	}
	return nil
}
