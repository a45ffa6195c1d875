package keepalive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// Keeper renews the leases of one backend from one timer and notices when one is over, by both clocks.
//
// Each lease is renewed RenewInterval after its last renewal was sent. What falls due together is renewed in one call.
// An unknown outcome is tried again until the lease is over; a lease that the backend says is gone ends at once. The
// end of a lease is watched while its renewal is under way, so a backend that hangs makes leases end, not linger.
type Keeper struct {
	renew  func(ctx context.Context, due []distributed.Lease)
	set    *deadline.Set[*Lease]
	base   time.Time
	closed atomic.Bool // set under mu
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	calls int            // guarded by mu; of renew, under way
	late  []*Lease       // guarded by mu; fell due meanwhile, and the next of those calls to end is followed by one for them
	ended sync.WaitGroup // calls; Add under mu, unless closed
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
// backend says that the lease is gone, or Postpone if it is not to be renewed yet, or none of these when it could not find
// out. It returns when ctx ends, and runs on a goroutine of the keeper's; calls can overlap, but not for one lease.
func NewKeeper(renew func(ctx context.Context, due []distributed.Lease)) *Keeper {
	k := &Keeper{renew: renew, base: time.Now()}
	k.set = deadline.New(k.fire)
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Keep starts l, which the lease outer embeds: it lasts until then, and is first renewed (claimed) at renewAt.
// Call it once, before anybody else sees the lease.
func (k *Keeper) Keep(l *Lease, outer distributed.Lease, ttl time.Duration, until, renewAt time.Time) {
	l.keeper, l.outer, l.ttl, l.renewAt = k, outer, ttl, renewAt
	l.first.until, l.first.due = until, renewAt
	l.now.Store(&l.first)
	l.item.Owner = l
	k.set.Put(&l.item, earlier(renewAt, until))
}

// Close stops all renewals and waits for those under way. Leases that are held are not ended: they run out, and what
// is told of their end is still told.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed.Store(true)
	k.mu.Unlock()
	k.cancel()
	k.ended.Wait()
}

// fire is called by the timer with the leases whose next moment has come.
func (k *Keeper) fire(now time.Time, due []*Lease) {
	batch := toRenew(now, due)
	if len(batch) == 0 || !k.begin(now, batch) {
		return
	}
	for {
		if len(batch) > 0 {
			k.call(now, batch)
		}
		if batch = k.next(); batch == nil {
			return
		}
		now = time.Now()
		batch = toRenew(now, batch)
	}
}

// toRenew keeps those of due that are to be renewed now.
func toRenew(now time.Time, due []*Lease) []*Lease {
	batch := due[:0]
	for _, l := range due {
		if l.due(now) {
			batch = append(batch, l)
		}
	}
	return batch
}

// begin reports whether there may be another call of renew. If not, the batch is left to those under way. Were it to try
// again by itself, it could find them busy each time, with leases that came later.
func (k *Keeper) begin(now time.Time, batch []*Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed.Load():
		return false
	case k.calls < maxRenewing:
		k.calls++
		k.ended.Add(1)
		return true
	}
	for _, l := range batch {
		l.unasked(now)
	}
	k.late = append(k.late, batch...)
	return false
}

// next returns what fell due during a call that has ended; nil: nothing, and there is one call less.
func (k *Keeper) next() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	batch := k.late
	k.late = nil
	if batch == nil {
		k.calls--
		k.ended.Done()
	}
	return batch
}

func (k *Keeper) call(now time.Time, batch []*Lease) {
	shortest := batch[0].ttl
	leases := make([]distributed.Lease, len(batch))
	for i, l := range batch {
		leases[i] = l.outer
		shortest = min(shortest, l.ttl)
	}
	ctx, cancel := context.WithTimeout(k.ctx, distributed.RenewInterval(shortest))
	defer cancel()
	k.renew(ctx, leases)
	back := time.Now()
	for _, l := range batch {
		l.unanswered(now, back)
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
