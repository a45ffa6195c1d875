package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// lease is an owner as its process knows it.
type lease struct {
	keepalive.Lease
	claim
	b        *Backend
	key      string
	since    time.Time   // it was granted after
	place    *place      // it was granted to; nil: by Enter itself
	silent   atomic.Bool // its server did not answer the last renewal
	others   watched     // who shares the lock
	released atomic.Bool // set before the cas that removes the claim, so that nobody else can find it missing and not know why
}

const (
	// Only renewals tell a holder that another waits, so they come more often than every T/3: at first after shortestLook, a
	// usual MaxTenure, then each time after as long as the lease has lasted, up to longestLook and T/6.
	shortestLook, longestLook = 100 * time.Millisecond, time.Second
	// maxRead keys are read in one request, and maxWritten leases written at a time: many share the round trips, and neither
	// the server nor the client's pool is flooded.
	maxRead, maxWritten = 100, 16
	// retracted is the part of T that an unread grant has left when it is taken back: twice the pause until the keeper asks again.
	retracted = 15
)

// keep starts a lease that was granted after since.
func (b *Backend) keep(key string, c claim, p *place, since time.Time, wanted bool) *lease {
	l := &lease{claim: c, b: b, key: key, place: p, since: since}
	window := distributed.ClaimWindow(c.TTL)
	b.keeper.Keep(&l.Lease, l, c.TTL, distributed.Validity(since, window), since.Add(min(window/3, shortestLook)))
	l.SetContended(wanted)
	return l
}

// renew is called by the keeper. The client waits for all servers that it asks in one request, so leases whose server was silent
// last time do not share one with the others.
func (b *Backend) renew(ctx context.Context, due []distributed.Lease) {
	var healthy, silent []*lease
	for _, d := range due {
		switch l := d.(*lease); {
		case l.unread():
		case l.silent.Load():
			silent = append(silent, l)
		default:
			healthy = append(healthy, l)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { b.renewAll(ctx, silent) })
	b.renewAll(ctx, healthy)
	both.Wait()
}

func (b *Backend) renewAll(ctx context.Context, due []*lease) {
	room := make(chan struct{}, maxWritten)
	var written sync.WaitGroup
	for part := range slices.Chunk(due, maxRead) {
		keys := make([]string, len(part))
		for i, l := range part {
			keys[i] = itemKey(l.key)
		}
		items, err := b.client.GetMulti(keys)
		for i, l := range part {
			item := items[keys[i]]
			l.silent.Store(item == nil && err != nil)
			if item == nil && err == nil {
				item = missing(l.key)
			}
			if item != nil { // else unknown: the keeper asks again
				room <- struct{}{}
				written.Go(func() { l.renew(ctx, item); <-room })
			}
		}
	}
	written.Wait()
}

func (l *lease) renew(ctx context.Context, item *memcache.Item) {
	var sent time.Time
	var held, wanted bool
	err := l.b.change(ctx, l.key, item, func(s *state, _ time.Time) bool {
		i := index(s.Owners, l.ID)
		if held = i >= 0; held {
			s.Owners[i].Beat++
			l.others.reap(s)
		}
		sent, wanted = time.Now(), s.wanted(l.Instance)
		return held
	})
	switch {
	case err != nil: // unknown
	case held:
		l.Renewed(distributed.Validity(sent, l.TTL)) // others count from their reading of this beat, which comes later (rule K4)
		l.SetContended(wanted)
		l.RenewBy(sent.Add(min(max(sent.Sub(l.since), shortestLook), longestLook, distributed.HeartbeatInterval(l.TTL))))
	default:
		l.End()
	}
}

// watched are the owners of a lock as one of them has read them. It takes out those that are dead, as a waiter does: or a permit of a
// process that was killed would never be free for callers that do not wait, as long as others renew the item.
type watched struct {
	mu   sync.Mutex
	seen sightings // guarded by mu; nil: nobody has shared the lock
}

func (w *watched) reap(s *state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil && len(s.Owners) > 1 {
		w.seen = sightings{}
	}
	if w.seen != nil {
		w.seen.reap(s, time.Now())
	}
}

// unread reports a grant that lies unread: it is not claimed, and is taken back before it ends (rule K5).
func (l *lease) unread() bool {
	if l.place == nil || len(l.place.granted) == 0 {
		return false
	}
	l.Postpone()
	if left, _ := l.At(time.Now()); left < l.TTL/retracted && l.place.retract() {
		close(l.place.granted)
		l.b.task(func() { l.b.drop(l.key, l.claim) })
	}
	return true
}

// NextFence implements distributed.Lease: there are none.
func (l *lease) NextFence() (uint64, bool) { return 0, false }

// Refill implements distributed.Lease.
func (l *lease) Refill(context.Context) error {
	return fmt.Errorf("memcachelock: fences: %w", errors.ErrUnsupported)
}

// Release implements distributed.Lease. It ignores ctx: a caller without time must not keep the lock.
func (l *lease) Release(context.Context) error {
	if l.b.isClosed() {
		return distributed.ErrClosed
	}
	return l.release(l.Finish())
}

// StartRelease implements distributed.AsyncLease.
func (l *lease) StartRelease() (done bool) {
	held := l.Stop()
	return !l.b.task(func() { l.Released(l.release(held)) }) // of a closed Backend it expires
}

func (l *lease) release(held bool) error {
	err := l.b.change(l.b.ctx, l.key, nil, func(s *state, _ time.Time) bool { return l.removeFrom(s) })
	switch {
	case err != nil:
		l.b.task(func() { l.b.drop(l.key, l.claim) })
		return err
	case !held || !l.released.Load():
		return distributed.ErrLeaseLost
	}
	return nil
}

// removeFrom removes the claim: a release, or an Enter with the lease as prev.
func (l *lease) removeFrom(s *state) bool {
	found := index(s.Owners, l.ID) >= 0
	if found {
		l.released.Store(true)
	}
	return found && s.remove(l.ID)
}
