package memlock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/deadline"
)

// shard is the server side for a part of the keys. Its clock is the expiry set; nothing else ends a lease that is not
// released.
//
// Locks are taken in the order shard.mu, the keepalive.Lease's, a deadline.Set's; none of them is held while a Watcher is
// called.
type shard struct {
	backend *Backend
	keeper  *keepalive.Keeper     // the client side's renewals of these keys
	expiry  *deadline.Set[*lease] // the server side's clock: one item per owner, due when it expires

	mu      sync.Mutex // guards all below, the entries, and the fields of leases and places marked so
	entries map[string]*entry
	most    int      // most entries since the map was made
	spare   *entry   // the entry freed last: a lone caller on changing keys then allocates only its leases
	fence   uint64   // the last one reserved; of the shard, not of a key, so an unused key takes no memory
	grants  uint64   // how many owners there have been
	news    []*lease // whose holders are to be notified that Contended or Wanted has changed: see unlock

	_ [64]byte // against false sharing with the next shard
}

// entry is one key that is held or waited for. All of it is guarded by shard.mu.
//
// Invariant, whenever mu is free: an entry has an owner, and admits refuses the first of its queue. So a request that may
// pass finds no queue, and nobody barges.
type entry struct {
	key         string
	owners      []*lease // one exclusive lease, or shared ones only
	first, last *place   // the queue, in order of arrival
	queued      int      // its length
}

const (
	// fenceBlock is how many fences an exclusive lease takes in advance. A lease draws from its own block only, so
	// one that was lost can never draw above its successor, whose block was taken later.
	fenceBlock = 1024
	// roomyMap is the size from which a map that has become nearly empty is replaced: maps never shrink.
	roomyMap = 1024
	// roomyEntry is how many owners an entry may have had to be kept as the spare.
	roomyEntry = 8
)

func (s *shard) init(b *Backend, fence uint64) {
	s.backend, s.fence = b, fence
	s.entries = make(map[string]*entry)
	s.keeper = keepalive.NewKeeper(renew)
	s.keeper.HearsRefusals = true
	s.expiry = deadline.New(s.expire)
}

// enter is the exchange behind Backend.Enter; prev, if any, is finished on the client side already.
func (s *shard) enter(req *distributed.Request, prev *lease) (distributed.Lease, distributed.Place, error) {
	now := time.Now()
	s.mu.Lock()
	if prev != nil {
		_ = s.release(prev) // whatever the answer, it is not ours any more or will not be
	}
	if err := s.backend.reachable(); err != nil {
		s.unlock()
		return nil, nil, err
	}
	e := s.entry(req.Key)
	if e.first == nil && e.admits(req.Mode, req.Limit) {
		l := s.grant(e, req.Instance, req.Mode, req.Limit > 0, req.TTL, now)
		l.keep()
		s.unlock()
		return l, nil, nil
	}
	if req.NoWait || req.QueueMost > 0 && e.queued >= req.QueueMost {
		holder := e.holder()
		s.want(e)
		s.unlock()
		return nil, nil, distributed.HeldAndTold(holder)
	}
	p := &place{shard: s, instance: req.Instance, mode: req.Mode, limit: req.Limit, ttl: req.TTL, since: now, granted: make(chan distributed.Lease, 1)}
	e.push(p)
	s.contend(e)
	s.unlock()
	return nil, p, nil
}

// release releases l, or puts that off until the partition is healed. It never touches another owner.
// The caller holds mu.
func (s *shard) release(l *lease) error {
	if l.state == owner {
		if err := s.backend.reachable(); err != nil {
			l.releasing = true
			return err
		}
		e := l.entry
		s.drop(l, released)
		s.advance(e)
		s.tidy(e)
		return nil
	}
	if err := s.backend.reachable(); err != nil {
		return err
	}
	if l.state == gone {
		return distributed.ErrLeaseLost
	}
	return nil
}

// advance grants the lock to the head of the queue: one exclusive lease, or the whole run of shared ones that their limits admit.
// The caller holds mu.
func (s *shard) advance(e *entry) {
	if e.first == nil {
		return
	}
	now, before := time.Now(), len(e.owners)
	for p := e.first; p != nil && e.admits(p.mode, p.limit); p = e.first {
		e.unlink(p)
		p.lease = s.grant(e, p.instance, p.mode, p.limit > 0, p.ttl, now)
		p.lease.place = p
	}
	s.contend(e)
	for _, l := range e.owners[before:] {
		l.place.deliver()
	}
}

// contend notes for every owner whether an instance other than its own waits. The caller holds mu.
func (s *shard) contend(e *entry) {
	for _, l := range e.owners {
		if l.Contend(e.waits(l.instance)) {
			s.news = append(s.news, l)
		}
	}
}

// want tells the owners that another was refused, who does not wait. The caller holds mu.
func (s *shard) want(e *entry) { // rule T12
	for _, l := range e.owners {
		if l.Want() {
			s.news = append(s.news, l)
		}
	}
}

// unlock unlocks mu and then notifies the holders for which Contended or Wanted has changed: no lock is held while a Watcher is
// called.
func (s *shard) unlock() {
	news := s.news
	s.news = nil
	s.mu.Unlock()
	for _, l := range news {
		l.NotifyContended()
	}
}

// grant makes a new owner, whose lease lasts for the claim window. The caller holds mu.
func (s *shard) grant(e *entry, instance string, mode distributed.Mode, permit bool, ttl time.Duration, now time.Time) *lease {
	s.grants++
	l := &lease{shard: s, entry: e, key: e.key, instance: instance, mode: mode, permit: permit, ttl: ttl, granted: now, id: s.grants}
	l.slot = len(e.owners)
	e.owners = append(e.owners, l)
	l.reserve()
	if l.firstFence = l.fence + 1; l.hasOneFence() {
		l.firstFence = l.lastFence
	}
	l.item.Owner = l
	l.expires = now.Add(distributed.ClaimWindow(ttl))
	s.expiry.Put(&l.item, l.expires)
	return l
}

// drop removes an owner. The caller holds mu, and calls advance and tidy.
func (s *shard) drop(l *lease, why leaseState) {
	e, last := l.entry, len(l.entry.owners)-1
	e.owners[l.slot] = e.owners[last]
	e.owners[l.slot].slot = l.slot
	e.owners[last] = nil
	e.owners = e.owners[:last]
	l.entry, l.state = nil, why
	s.expiry.Remove(&l.item)
	if why == released {
		l.returnFences()
	}
	if p := l.place; p != nil && p.state == undelivered {
		p.lose() // the grant ended before its client heard of it
	}
}

// expire is called by the server's clock. A lease that was renewed or released meanwhile is left alone.
func (s *shard) expire(now time.Time, due []*lease) {
	s.mu.Lock()
	defer s.unlock()
	for _, l := range due {
		if l.state == owner && !now.Before(l.expires) {
			e := l.entry
			s.drop(l, gone)
			s.advance(e)
			s.tidy(e)
		}
	}
}

// renew renews leases for the keeper, one by one.
func renew(_ context.Context, due []distributed.Lease) {
	now := time.Now()
	for _, w := range due {
		w.(*lease).renew(now)
	}
	if len(due) > 0 {
		b := due[0].(*lease).shard.backend
		b.health.exchanged(b.reachable())
	}
}

// close ends all places. Nobody enters any more, since the Backend is marked closed, and its keeper renews nothing.
func (s *shard) close() {
	s.mu.Lock()
	for _, e := range s.entries {
		for e.first != nil {
			p := e.first
			e.unlink(p)
			p.lose()
		}
		for _, l := range slices.Clone(e.owners) {
			if l.place != nil && l.place.retract() {
				s.drop(l, released)
				l.place.lose()
			}
		}
		s.tidy(e)
	}
	s.unlock()
	s.keeper.Close()
}

// heal carries out what a partition has delayed. Releases and departures come first, so that a grant goes to a place that
// was not left.
func (s *shard) heal() {
	now := time.Now()
	s.mu.Lock()
	defer s.unlock()
	for _, e := range s.entries {
		for p := e.first; p != nil; {
			next := p.next
			if p.left {
				e.unlink(p)
				p.state = ended
			}
			p = next
		}
		for _, l := range slices.Clone(e.owners) {
			switch p := l.place; {
			case l.releasing, p != nil && p.state == undelivered && (p.left || distributed.Over(now, l.window())):
				s.drop(l, released)
			case p != nil:
				p.deliver()
			}
		}
		s.advance(e)
		s.contend(e)
		s.tidy(e)
	}
}

// entry finds the entry of a key or makes an empty one, to which the caller must add an owner. The caller holds mu.
func (s *shard) entry(key string) *entry {
	e := s.entries[key]
	if e != nil {
		return e
	}
	if e = s.spare; e == nil {
		e = new(entry)
	}
	s.spare = nil
	e.key = key
	s.entries[key] = e
	s.most = max(s.most, len(s.entries))
	return e
}

// tidy frees an entry without owner (and so without queue). The caller holds mu.
func (s *shard) tidy(e *entry) {
	if len(e.owners) > 0 {
		return
	}
	delete(s.entries, e.key)
	e.key = ""
	if cap(e.owners) <= roomyEntry {
		s.spare = e
	}
	if s.most > roomyMap && len(s.entries) < s.most/8 {
		small := make(map[string]*entry, len(s.entries))
		maps.Copy(small, s.entries)
		s.entries, s.most = small, len(small)
	}
}

// admits reports whether the owners admit another beside them: one more reader, or one more permit while there are fewer than
// its limit, of whatever kind (rule P1).
func (e *entry) admits(mode distributed.Mode, limit int) bool {
	if len(e.owners) == 0 {
		return true
	}
	return mode == distributed.Shared && e.owners[0].mode == distributed.Shared && (limit == 0 || len(e.owners) < limit)
}

// waits reports whether an instance other than this one is queued.
func (e *entry) waits(instance string) bool {
	for p := e.first; p != nil; p = p.next {
		if p.instance != instance {
			return true
		}
	}
	return false
}

func (e *entry) push(p *place) {
	e.queued++
	p.entry, p.prev = e, e.last
	if e.last == nil {
		e.first = p
	} else {
		e.last.next = p
	}
	e.last = p
}

func (e *entry) unlink(p *place) {
	e.queued--
	if p.prev == nil {
		e.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		e.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.entry, p.prev, p.next = nil, nil, nil
}
