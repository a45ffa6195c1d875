package memlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// errCut is what a partition does to every request: no connection, nothing sent.
var errCut = keyless.Errorf("partitioned: %w: %w", distributed.ErrUnavailable, distributed.ErrUnreached)

// health is what a Backend reports of its exchanges, and what its instances have said of their TTLs.
type health struct {
	observers parts.Observers

	mu   sync.Mutex                             // guards all below
	ttls map[string]map[time.Duration]time.Time // by system, and until when each is noted
}

// ttlMemory is how long a TTL is remembered, or twice itself if that is longer.
const ttlMemory = 5 * time.Minute

// Observe implements distributed.Observable.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) {
	return b.health.observers.Observe(f)
}

// exchanged reports an exchange that has just been. The caller holds no lock.
func (h *health) exchanged(err error) {
	if errors.Is(err, distributed.ErrClosed) {
		return
	}
	var e distributed.Exchange
	if err != nil && errors.Is(err, distributed.ErrUnavailable) {
		e.Sent, e.Err = time.Now(), err
	}
	h.observers.Report(e)
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
