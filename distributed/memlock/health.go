package memlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// errCut is what a partition does to every request: no connection, nothing sent.
var errCut = fmt.Errorf("partitioned: %w: %w", distributed.ErrUnavailable, distributed.ErrUnreached)

// health is what a Backend reports of its exchanges, and what its instances have said of their TTLs.
type health struct {
	observers atomic.Pointer[[]*func(distributed.Exchange)] // never changed in place; nil: none

	mu   sync.Mutex                             // guards all below, and changes of observers
	ttls map[string]map[time.Duration]time.Time // by system, and until when each is noted
}

// ttlMemory is how long a TTL is remembered, or twice itself if that is longer.
const ttlMemory = 5 * time.Minute

// Observe implements distributed.Observable.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) {
	b.health.change(func(all []*func(distributed.Exchange)) []*func(distributed.Exchange) { return append(all, &f) })
	return func() {
		b.health.change(func(all []*func(distributed.Exchange)) []*func(distributed.Exchange) {
			return slices.DeleteFunc(all, func(one *func(distributed.Exchange)) bool { return one == &f })
		})
	}
}

func (h *health) change(f func([]*func(distributed.Exchange)) []*func(distributed.Exchange)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*func(distributed.Exchange)
	if old := h.observers.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = f(all)
	h.observers.Store(&all)
}

// exchanged reports an exchange that has just been. The caller holds no lock.
func (h *health) exchanged(err error) {
	list := h.observers.Load()
	if list == nil || len(*list) == 0 || err != nil && errors.Is(err, distributed.ErrClosed) {
		return
	}
	var e distributed.Exchange
	if err != nil && errors.Is(err, distributed.ErrUnavailable) {
		e.Sent, e.Err = time.Now(), err
	}
	for _, f := range *list {
		(*f)(e)
	}
}

// Echo implements distributed.Observable.
func (b *Backend) Echo(ctx context.Context) error { return b.Ping(ctx) }

// LongestTTL implements distributed.TTLRegistry.
func (b *Backend) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	if err := b.Ping(ctx); err != nil {
		return 0, err
	}
	now := time.Now()
	h := &b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ttls == nil {
		h.ttls = map[string]map[time.Duration]time.Time{}
	}
	all := h.ttls[system]
	if all == nil {
		all = map[time.Duration]time.Time{}
		h.ttls[system] = all
	}
	all[own] = now.Add(max(ttlMemory, 2*own))
	longest := own
	for ttl, until := range all {
		if now.After(until) {
			delete(all, ttl)
		} else {
			longest = max(longest, ttl)
		}
	}
	return longest, nil
}
