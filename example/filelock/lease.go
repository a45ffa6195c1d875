//go:build unix

package filelock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// lease is an owner as its process knows it. The embedded keepalive.Lease has most of the methods.
type lease struct {
	keepalive.Lease
	backend *Backend
	key     string
	claim          // read only, but for Fence
	place   *place // it was granted to; nil: Enter granted it

	released atomic.Bool // set under the file's lock, with the removal that a release was, so that the next one knows
	pending  bool        // guarded by Backend.mu: its release has failed and is to be tried again

	mu    sync.Mutex // guards fence and claim.Fence
	fence uint64     // drawn last
}

// keep starts the lease of an owner. The caller holds b.mu.
func (b *Backend) keep(key string, c *claim, p *place) *lease {
	l := &lease{backend: b, key: key, claim: *c, place: p, fence: c.Fence - fenceBlock}
	now, window := time.Now(), distributed.ClaimWindow(c.TTL)
	granted := now.Add(time.Duration(c.Expires-now.UnixNano()) - window) // with a reading of the monotonic clock
	b.leases[l] = true
	b.keeper.Keep(&l.Lease, l, c.TTL, distributed.Validity(granted, window), granted.Add(window/3))
	return l
}

// renew is called by the Keeper. It does not claim an unread grant yet: perhaps nobody will release that.
func (b *Backend) renew(ctx context.Context, due []distributed.Lease) {
	for _, d := range due {
		l := d.(*lease)
		if l.place != nil && len(l.place.granted) > 0 {
			l.Postpone()
			continue
		}
		sent, held := time.Now(), false
		err := b.update(ctx, l.key, func(s *state, now time.Time) {
			if c := find(s.Owners, l.ID); c != nil {
				c.Expires, held = now.Add(l.TTL).UnixNano(), true
			}
		})
		switch {
		case err != nil: // unknown: the Keeper tries again until the lease expires
		case held:
			l.Renewed(distributed.Validity(sent, l.TTL))
		default:
			l.End()
		}
	}
}

// look is called by the poller with the state of the lease's key.
func (l *lease) look(s *state, now time.Time) {
	b := l.backend
	b.mu.Lock()
	pending := l.pending
	b.mu.Unlock()
	switch {
	case pending && !distributed.Over(now, l.Until()):
		_ = l.remove()
		return
	case pending, find(s.Owners, l.ID) == nil:
		l.End() // without effect if the release has begun
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.leases, l)
		return
	}
	l.SetContended(slices.ContainsFunc(s.Queue, func(c *claim) bool { return c.Instance != l.Instance }))
}

// NextFence implements distributed.Lease.
func (l *lease) NextFence() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Shared {
		return l.Fence, true
	}
	if l.fence == l.Fence {
		return 0, false
	}
	l.fence++
	return l.fence, true
}

// Refill implements distributed.Lease. Only an owner gets more: its successor may have drawn fences already.
func (l *lease) Refill(ctx context.Context) error {
	var owner *claim
	err := l.backend.update(ctx, l.key, func(s *state, now time.Time) {
		if owner = find(s.Owners, l.ID); owner != nil && !l.Shared {
			s.reserve(owner, now)
		}
	})
	if err == nil && owner == nil {
		return distributed.ErrLeaseLost
	}
	if err == nil && !l.Shared {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fence, l.Fence = owner.Fence-fenceBlock, owner.Fence
	}
	return err
}

// Release implements distributed.Lease. It ignores ctx: a caller without time must not keep the lock.
func (l *lease) Release(context.Context) error { return l.release(l.Finish()) }

// StartRelease implements distributed.AsyncLease.
func (l *lease) StartRelease() bool {
	held, b := l.Stop(), l.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(func() { l.Released(l.release(held)) })
	}
	return b.closed // then it expires
}

func (l *lease) release(held bool) error {
	if err := l.remove(); err != nil {
		return err
	}
	if !held || !l.released.Load() {
		return distributed.ErrLeaseLost
	}
	return nil
}

// remove removes the owner from the file. After an error the poller tries again.
func (l *lease) remove() error {
	var found bool
	b := l.backend
	err := b.update(context.Background(), l.key, func(s *state, _ time.Time) { found = l.removeFrom(s) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.pending = err != nil; l.pending && found {
		l.released.Store(false) // it is still in the file
	} else if !l.pending {
		delete(b.leases, l)
	}
	return err
}

// removeFrom takes the owner out of the state of its key. It reports false if the owner was not there.
func (l *lease) removeFrom(s *state) bool {
	found := s.remove(l.ID)
	if found {
		l.released.Store(true)
	}
	return found
}

// place is a waiter as its process knows it.
type place struct {
	backend *Backend
	key     string
	claim
	granted chan distributed.Lease // holds one
}

// Granted implements distributed.Place.
func (p *place) Granted() <-chan distributed.Lease { return p.granted }

// look is called by the poller with the state of the place's key: it delivers the grant, or sends a heartbeat.
func (p *place) look(s *state, now time.Time) {
	b := p.backend
	if c := find(s.Queue, p.ID); c != nil {
		window, beat := distributed.ClaimWindow(p.TTL), distributed.HeartbeatInterval(p.TTL)
		if c.expired(now.Add(window-beat)) || len(s.Owners) == 0 || s.Owners[0].expired(now) {
			_ = b.update(b.ctx, p.key, func(s *state, now time.Time) { // which drops what has expired, too
				if c := find(s.Queue, p.ID); c != nil {
					c.Expires = now.Add(window).UnixNano()
				}
			})
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.places[p] {
		return // Leave or Close was first
	}
	delete(b.places, p)
	if c := find(s.Owners, p.ID); c != nil {
		p.granted <- b.keep(p.key, c, p)
	} else {
		close(p.granted)
	}
}

// Leave implements distributed.Place. It races with the receiver for an unread grant; the channel decides.
func (p *place) Leave(ctx context.Context) error {
	b := p.backend
	b.mu.Lock()
	waiting := b.places[p]
	delete(b.places, p)
	b.mu.Unlock()
	if waiting { // after an error it expires, since it sends no heartbeats any more
		return p.remove()
	}
	select {
	case l := <-p.granted:
		if l == nil {
			return nil // lost before
		}
		if err := l.Release(ctx); err != distributed.ErrLeaseLost {
			return err
		}
	default: // received, or left before
	}
	return nil
}

func (p *place) remove() error {
	return p.backend.update(context.Background(), p.key, func(s *state, _ time.Time) { s.remove(p.ID) })
}
