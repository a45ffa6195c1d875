package memlock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// records are the locks that were ended by force, until that is forgotten.
type records struct {
	mu  sync.Mutex
	all map[string]distributed.Breaking // by key; guarded by mu
}

// note remembers one, and forgets those that are too old.
func (r *records) note(key string, b distributed.Breaking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]distributed.Breaking{}
	}
	maps.DeleteFunc(r.all, func(_ string, old distributed.Breaking) bool { return forgotten(old) })
	r.all[key] = b
}

func (r *records) of(key string) *distributed.Breaking {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.all[key]; ok && !forgotten(b) {
		return &b
	}
	return nil
}

func forgotten(b distributed.Breaking) bool { return time.Since(b.At) > distributed.BrokenMemory }

// Inspect implements distributed.Inspector.
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	found := distributed.Inspection{Key: key}
	if err := ctx.Err(); err != nil {
		return found, err
	}
	s := b.shardOf(key)
	s.mu.Lock()
	err := b.reachable()
	if e := s.entries[key]; e != nil && err == nil {
		e.describe(&found, distributed.MaxNamed, distributed.MaxNamed)
	}
	s.mu.Unlock()
	b.health.exchanged(err)
	if err == nil {
		found.Broken = b.broken.of(key)
	}
	return found, err
}

// describe fills in an Inspection that names so many. The caller holds shard.mu.
func (e *entry) describe(to *distributed.Inspection, holders, waiters int) {
	now := time.Now()
	all := slices.SortedFunc(slices.Values(e.owners), func(a, b *lease) int { return cmp.Compare(a.id, b.id) })
	for _, l := range all {
		to.Mode = l.mode
		to.Fence = max(to.Fence, l.fence)
		if l.hasOneFence() {
			to.Fence = max(to.Fence, l.lastFence)
		}
		if to.Since.IsZero() || l.granted.Before(to.Since) {
			to.Since = l.granted
		}
		if len(to.Holders) == holders {
			to.MoreHolders++
			continue
		}
		to.Holders = append(to.Holders, distributed.Holder{Instance: l.instance, Since: l.granted, Left: l.expires.Sub(now), Fence: l.firstFence})
		to.State = strconv.FormatUint(l.id, 10) // of the youngest that is named: see breaks
	}
	for p := e.first; p != nil; p = p.next {
		if len(to.Waiters) == waiters {
			to.MoreWaiters++
			continue
		}
		to.Waiters = append(to.Waiters, distributed.Waiter{Instance: p.instance, Mode: p.mode, Limit: p.limit, Since: p.since})
	}
}

// List implements distributed.Inspector. Pages are in the order of the keys, and the cursor is the last key of the page.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	if err := parts.CheckPage("memlock", limit); err != nil {
		return nil, "", err
	}
	var all []distributed.Inspection
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		if err := b.reachable(); err != nil {
			s.mu.Unlock()
			return nil, "", err
		}
		for key, e := range s.entries {
			if strings.HasPrefix(key, prefix) && key > cursor {
				found := distributed.Inspection{Key: key}
				e.describe(&found, 1, 0)
				all = append(all, found)
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b distributed.Inspection) int { return cmp.Compare(a.Key, b.Key) })
	if len(all) <= limit {
		return all, "", nil
	}
	return all[:limit:limit], all[limit-1].Key, nil
}

// Break implements distributed.Inspector. It need not move fences, because those of a new lease are above all that were reserved before.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, err := distributed.NewBreaking(found, by, reason)
	if err != nil {
		return record, err
	}
	if err = ctx.Err(); err != nil {
		return record, err
	}
	ended, err := b.shardOf(found.Key).breaks(found, &record)
	b.health.exchanged(err)
	if err != nil {
		return record, err
	}
	for _, l := range ended {
		l.End() // no lock is held, because it calls the Watcher
	}
	return record, nil
}

// breaks drops the owners that were found, and grants the lock to the next. It returns those whose clients know them.
func (s *shard) breaks(found distributed.Inspection, record *distributed.Breaking) ([]*lease, error) {
	seen, err := strconv.ParseUint(found.State, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("memlock: %q is no state of a lock", found.State)
	}
	s.mu.Lock()
	defer s.unlock()
	if err := s.backend.reachable(); err != nil {
		return nil, err
	}
	e := s.entries[found.Key]
	if e == nil || !slices.ContainsFunc(e.owners, func(l *lease) bool { return l.id <= seen }) {
		return nil, keyless.Errorf("memlock: break: %w", distributed.ErrNotHeld)
	}
	s.fence++ // between those reserved and those to come
	record.At, record.Fence = time.Now(), s.fence
	s.backend.broken.note(found.Key, *record) // before a holder learns of it, and asks who it was
	var ended []*lease
	for _, l := range slices.Clone(e.owners) {
		if l.place == nil || l.place.state != undelivered { // else its client does not know it, and never will
			ended = append(ended, l)
		}
		s.drop(l, gone)
	}
	s.advance(e)
	s.tidy(e)
	return ended, nil
}

// holder names the owners. The caller holds shard.mu.
func (e *entry) holder() string {
	if len(e.owners) == 0 {
		return ""
	}
	return distributed.HolderText(e.owners[0].instance, len(e.owners)-1)
}

// Holder implements distributed.Place.
func (p *place) Holder() string {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	if p.entry == nil {
		return ""
	}
	return p.entry.holder()
}
