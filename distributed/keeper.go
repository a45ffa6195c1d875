package distributed

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/deadline"
)

// Keeper renews the leases of one backend from one timer and notices when one is over, by both clocks.
//
// Each lease is renewed RenewInterval after its last renewal was sent. What falls due together is renewed in one call.
// An unknown outcome is tried again until the lease is over; a lease that the backend says is gone ends at once. The
// end of a lease is watched while its renewal is under way, so a backend that hangs makes leases end, not linger.
type Keeper struct {
	renew  func(ctx context.Context, due []Watched)
	set    *deadline.Set[*Term]
	base   time.Time
	slots  chan struct{} // one for each call of renew under way
	closed atomic.Bool
	ctx    context.Context
	cancel context.CancelFunc
}

const (
	// maxRenewing bounds the calls of renew that can be under way together, and with them the goroutines. More than
	// one, so that a batch on a dead connection does not hold up the next; few, for a batch holds any number of leases.
	maxRenewing = 4
	// retriesPerTTL sets how often a renewal with unknown outcome is repeated: often enough that a short gap in the
	// network costs no lease, seldom enough not to be a storm.
	retriesPerTTL = 30
	// gridPerTTL is into how many points renewals are gathered, so that they share a pipeline: 1% of T is less than
	// the drift allowance and cannot matter to a renewal planned at T/3.
	gridPerTTL = 100
)

// NewKeeper returns a Keeper that renews through renew. For each lease it is given, renew calls Renewed, or End if the
// backend says that the lease is gone, or neither when it could not find out. It returns when ctx ends, and runs on a
// goroutine of the keeper's; calls can overlap, but not for one lease.
func NewKeeper(renew func(ctx context.Context, due []Watched)) *Keeper {
	k := &Keeper{renew: renew, base: time.Now(), slots: make(chan struct{}, maxRenewing)}
	k.set = deadline.New(k.fire)
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Keep starts the term of lease, which embeds t: it lasts until then, and is first renewed (claimed) at renewAt.
// Call it once, before anybody else sees the lease.
func (k *Keeper) Keep(t *Term, lease Watched, ttl time.Duration, until, renewAt time.Time) {
	t.keeper, t.lease, t.ttl, t.renewAt = k, lease, ttl, renewAt
	t.first.until = until
	t.now.Store(&t.first)
	t.item.Owner = t
	k.set.Put(&t.item, earlier(renewAt, until))
}

// Close stops all renewals and waits for those under way. Leases that are held are not ended: they run out, and what
// is told of their end is still told.
func (k *Keeper) Close() {
	if k.closed.Swap(true) {
		return
	}
	k.cancel()
	for range maxRenewing { // with every slot taken, no renewal runs and none can begin
		k.slots <- struct{}{}
	}
}

// fire is called by the timer with the terms whose next moment has come.
func (k *Keeper) fire(now time.Time, due []*Term) {
	var batch []*Term
	shortest := time.Duration(1<<63 - 1)
	for _, t := range due {
		if t.due(now) {
			batch = append(batch, t)
			shortest = min(shortest, t.ttl)
		}
	}
	if len(batch) == 0 {
		return
	}
	select {
	case k.slots <- struct{}{}:
	default: // all calls are stuck; these leases are asked for again a little later
		for _, t := range batch {
			t.unanswered(now, now, false)
		}
		return
	}
	defer func() { <-k.slots }()

	ctx, cancel := context.WithTimeout(k.ctx, RenewInterval(shortest))
	defer cancel()
	leases := make([]Watched, len(batch))
	for i, t := range batch {
		leases[i] = t.lease
	}
	k.renew(ctx, leases)
	back := time.Now()
	for _, t := range batch {
		t.unanswered(now, back, true)
	}
}

// grid moves a time back to the last of the points at which leases of this TTL are renewed together.
func (k *Keeper) grid(at time.Time, ttl time.Duration) time.Time {
	step := max(ttl/gridPerTTL, time.Millisecond)
	return at.Add(-(at.Sub(k.base) % step))
}

// retryInterval is the pause before a renewal with unknown outcome is repeated.
func retryInterval(ttl time.Duration) time.Duration {
	return max(ttl/retriesPerTTL, time.Millisecond)
}
