package keepalive

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// Keeper renews the leases of one backend from one timer and notices when one expires, by both clocks.
//
// Each lease is renewed RenewInterval after its last renewal was sent (rule K1). Renewals that fall due together share one
// call. One with an unknown outcome is retried until the lease expires. A lease that the backend says is gone ends at
// once. The end of a lease is watched while its renewal is under way, so a backend that hangs makes leases end, not linger.
type Keeper struct {
	HearsRefusals bool // set before the first Keep: see Lease.HearsRefusals

	renew  func(ctx context.Context, due []distributed.Lease)
	set    *deadline.Set[*Lease]
	base   time.Time
	closed atomic.Bool  // set under mu
	behind atomic.Int64 // until when new leases wait, since base. Each late renewal stores its own: two that cross differ by less than T/12
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	calls int            // guarded by mu; of renew, under way
	late  byUntil        // guarded by mu; fell due meanwhile: the next call to end is followed by one for them
	ended sync.WaitGroup // calls; Add under mu, unless closed
}

const (
	// maxRenewing bounds the concurrent calls of renew, and with them the goroutines. More than one, so that a batch on a
	// dead connection does not delay the next; few, since a batch holds many leases.
	maxRenewing = 4
	// mostRenewed bounds the leases of one call: about what a backend sends at a time. With more, those at the end of a batch would have no time left
	// when much falls due at once, as after a pause of the service.
	mostRenewed = 4096
	// retriesPerTTL sets how often a renewal with unknown outcome is retried: often enough that a short network failure
	// costs no lease, seldom enough not to be a storm.
	retriesPerTTL = 30
	// behindPerTTL is the part of T by which a renewal may be sent late before new leases wait: what is left of a claim window is enough for it.
	behindPerTTL = 12
	// gridPerTTL is the number of points in T at which renewals are gathered, so that they share a pipeline: 1% of T is
	// less than the drift allowance and cannot matter to a renewal planned at T/3.
	gridPerTTL = 100
)

// NewKeeper returns a Keeper that renews through renew. For each lease in due, renew calls Renewed, or End if the backend
// says that the lease is gone, or Postpone if it is not to be renewed yet, or Failed. If it calls none of these the outcome is unknown.
// It returns when ctx ends, and runs on a goroutine of the keeper's. Calls can overlap, but not for one lease.
func NewKeeper(renew func(ctx context.Context, due []distributed.Lease)) *Keeper {
	k := &Keeper{renew: renew, base: time.Now()}
	k.set = deadline.New(k.fire)
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Keep starts l, which the lease outer embeds: it lasts until the given time, and is first renewed (claimed) at renewAt.
// Call it once, before anybody else sees the lease.
func (k *Keeper) Keep(l *Lease, outer Kept, ttl time.Duration, until, renewAt time.Time) {
	l.keeper, l.outer, l.ttl, l.renewAt = k, outer, ttl, renewAt
	l.first.until, l.first.due = until, renewAt
	l.now.Store(&l.first)
	l.item.Owner = l
	k.set.Put(&l.item, earlier(renewAt, until))
}

// CatchUp is called before a new lease is asked for. It waits while renewals are sent late though the service answers: there are more than it
// can take, and one lease more would make them later (rule K6). It returns nil then, or when the Keeper is closed, or else the error of ctx.
func (k *Keeper) CatchUp(ctx context.Context) error {
	for {
		left := time.Duration(k.behind.Load()) - time.Since(k.base)
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-k.ctx.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close stops all renewals and waits for those under way. Leases that are held are not ended: they expire, and their
// Watchers are still notified.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed.Store(true)
	k.mu.Unlock()
	k.cancel()
	k.ended.Wait()
}

// fire is called by the timer with the leases whose next moment has come.
func (k *Keeper) fire(now time.Time, due []*Lease) {
	if batch := k.begin(now, toRenew(now, due)); batch != nil {
		k.work(now, batch)
	}
}

// work makes calls until nothing is left to renew.
func (k *Keeper) work(now time.Time, batch []*Lease) {
	for batch != nil {
		if len(batch) > 0 {
			k.call(now, batch)
		}
		batch, now = k.next(), time.Now()
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

// begin returns the batch of a call that may start, or nil, and leaves the rest to the calls under way and to those that it starts. If the rest
// was tried again by itself, it could find them busy each time, with leases that came later.
func (k *Keeper) begin(now time.Time, batch []*Lease) (mine []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(batch) == 0 || k.closed.Load() {
		return nil
	}
	if k.calls < maxRenewing {
		mine, batch = batch[:min(len(batch), mostRenewed)], batch[min(len(batch), mostRenewed):]
		k.calls++
		k.ended.Add(1)
	}
	for _, l := range batch {
		l.unasked(now)
		k.late = append(k.late, lateLease{l.Until(), l})
		heap.Fix(&k.late, len(k.late)-1)
	}
	for left := len(batch); left > 0 && k.calls < maxRenewing; left -= mostRenewed {
		k.calls++
		k.ended.Add(1)
		go k.work(now, []*Lease{})
	}
	return mine
}

// next returns what a call that has ended is to be followed by, those first that end first: a claim has less left than a renewal. nil: nothing is
// left, and there is one call less.
func (k *Keeper) next() (batch []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.late) > 0 && len(batch) < mostRenewed {
		last := len(k.late) - 1
		batch = append(batch, k.late[0].lease)
		k.late[0], k.late[last] = k.late[last], lateLease{}
		if k.late = k.late[:last]; last > 0 {
			heap.Fix(&k.late, 0)
		}
	}
	if batch == nil {
		k.late = nil
		k.calls--
		k.ended.Done()
	}
	return batch
}

// lateLease is a lease that fell due while maxRenewing calls were under way, or more did than one call has.
type lateLease struct {
	until time.Time
	lease *Lease
}

// byUntil is a heap. Push and Pop are not used: elements are put in place by heap.Fix.
type byUntil []lateLease

func (h byUntil) Len() int           { return len(h) }
func (h byUntil) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h byUntil) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byUntil) Push(any)          {}
func (h *byUntil) Pop() any          { return nil }

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
	for _, l := range batch {
		l.failed(now, nil)
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
