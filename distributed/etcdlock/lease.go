package etcdlock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// lease is a key that is first in line. keepalive.Lease notices its end; what is here is how long the session vouches for it, its
// fences and its release.
//
//	kept ── Release, StartRelease ──▶ starting ── sent ──▶ releasing ── answer ──▶ released
//	kept, starting ── Prev of an Enter ──▶ adopted: the Enter deletes it ──▶ released
//	                                       └─ the Enter has failed ──▶ releasing
//
// A lease that is lost while the session lives, as one that was abandoned, has its key deleted at once (rule E5).
type lease struct {
	keepalive.Lease
	a      *attempt
	window time.Time // until then it lasts without being claimed
	fences fences
	hook   hook  // the Watcher before the user's
	seen   int64 // guarded by a.mu; the revision at which nobody was behind it; 0: not known, or somebody was

	granted int64 // guarded by a.mu; the revision of the view that has made it

	mu      sync.Mutex // guards all below
	phase   phase
	held    bool // when its release began
	watched bool // the answer goes to the Watcher
	err     error
	done    chan struct{} // closed once released
	refused chan error    // capacity 1: the release was refused
}

type phase uint8

const (
	kept phase = iota
	starting
	adopted
	releasing
	released
)

// watchPause is how long after its grant a holder has a watch set: most holds are shorter, and never pay for it.
const watchPause = 2 * time.Millisecond

// keptFor is how long a renewal makes a lease last, as the Keeper knows it: so it renews when half of the TTL is left. After
// a renewal three quarters are.
func keptFor(ttl time.Duration) time.Duration { return ttl * 3 / 4 }

// newLease makes the lease of a grant. It lasts for the claim window, or as long as the session if that is shorter. The
// caller holds a.mu.
func newLease(a *attempt, g grant) *lease {
	l := &lease{a: a, done: make(chan struct{}), refused: make(chan error, 1)}
	if l.fences.permit = a.limit > 0; a.shared() && a.limit == 0 {
		l.fences.share(g.fence)
	} else {
		l.fences.open(g.fence)
	}
	window, length := distributed.ClaimWindow(a.ttl), keptFor(a.s.ttl())
	l.window = distributed.Validity(g.since, window)
	until := earlier(l.window, a.s.until())
	a.b.keeper.Keep(&l.Lease, l, length, until, g.since.Add(min(window, length)/3))
	l.hook.l = l
	l.Lease.Watch(&l.hook, l)
	l.SetContended(g.waiter != "")
	l.granted = g.revision
	switch {
	case a.worthWatching(a.shared(), g.waiter):
		a.waiter = g.waiter
		a.plan(watchPause)
	case g.waiter != "":
		a.plan(distributed.RenewInterval(min(a.ttl, a.s.ttl())))
	default:
		l.seen = g.revision
		a.plan(watchPause)
	}
	return l
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// renew extends the lease by what the session has proven. All leases share its keepalives. An unread grant is not claimed:
// perhaps nobody will release it.
func (l *lease) renew(now time.Time) {
	until := l.a.s.until()
	if l.a.unread() {
		until = earlier(until, l.window)
	}
	switch {
	case !l.a.s.healthy(now): // unknown
	case until.After(l.Until()):
		l.Renewed(until)
	default:
		l.Postpone()
	}
}

// At implements distributed.AsyncLease. A lease whose session is silent is not healthy.
func (l *lease) At(now time.Time) (time.Duration, bool) {
	left, healthy := l.Lease.At(now)
	return left, healthy && l.a.s.healthy(now)
}

// Healthy implements distributed.Lease.
func (l *lease) Healthy() bool {
	_, healthy := l.At(time.Now())
	return healthy
}

// isShared reports that it is, or that it was downgraded.
func (l *lease) isShared() bool { return l.a.shared() || l.fences.isShared() }

func (l *lease) isEnding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase != kept || distributed.Over(time.Now(), l.Until())
}

// fired takes the events of the watch: somebody has entered, or the own key was deleted. Once it is known that somebody waits the
// watch has done its work.
func (l *lease) fired(events []*mvccpb.Event) {
	if l.isEnding() {
		return
	}
	var waiter *mvccpb.KeyValue
	var left []string
	counts := false
	for _, e := range events {
		name := string(e.Kv.Key)
		switch {
		case e.Type == mvccpb.DELETE && name == l.a.name:
			l.End()
			return
		case e.Type == mvccpb.DELETE:
			left = append(left, name)
		case e.Type == mvccpb.PUT && e.Kv.Version == 1 && l.a.isOther(e.Kv):
			if l.isShared() && l.a.isPermit(e.Kv) {
				counts = true
			} else if waiter == nil && strings.HasPrefix(name, l.a.rivals(l.isShared())) {
				waiter = e.Kv
			}
		}
	}
	a := l.a
	a.mu.Lock()
	switch {
	case a.state != leased:
	case waiter != nil:
		a.unwatch()
		l.seen = 0
		if l.isShared() {
			a.watchWaiter(string(waiter.Key), waiter.ModRevision)
		}
		a.planChecks()
	case len(events) == 0 || slices.Contains(left, a.waiter):
		a.unwatch()
		l.seen = 0
		a.plan(0)
	case counts: // perhaps it waits; others may come with it
		a.counts = true
		a.plan(watchPause)
	}
	a.mu.Unlock()
	if waiter != nil {
		l.SetContended(true)
	}
}

// Downgrade implements distributed.Downgrader: the key is written a second time. Readers that wait for it watch it.
func (l *lease) Downgrade(ctx context.Context) error {
	if l.isShared() {
		return nil
	}
	revision, err := l.a.ifOurs(ctx, "downgrade", opPut(l.a.name, l.a.value, l.a.s.lease()))
	if err != nil {
		return err
	}
	fence, err := fenceOf(revision)
	if err != nil {
		return err
	}
	l.fences.share(fence)
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if l.a.state == leased {
		l.seen = 0 // others count as waiters now
		l.a.plan(0)
	}
	return nil
}

// NextFence implements distributed.Lease. More are fetched in the background when half are used.
func (l *lease) NextFence() (uint64, bool) {
	fence, ok, low := l.fences.draw()
	if low && l.a.b.begin() {
		go func() {
			defer l.a.b.tasks.Done()
			_ = l.Refill(l.a.s.ctx) // its user asks again when it runs out
		}()
	}
	return fence, ok
}

// Refill implements distributed.Lease: any change has a new revision. It is made only if our key is there, so it comes before
// the deletion of that, which lets the next one in.
func (l *lease) Refill(ctx context.Context) error {
	if l.fences.isShared() {
		return nil
	}
	revision, err := l.a.ifOurs(ctx, "refill", opPut(l.a.s.writeKey(), "", l.a.s.lease()))
	if err != nil {
		return err
	}
	fence, err := fenceOf(revision)
	if err == nil {
		l.fences.open(fence)
	}
	return err
}

// ifOurs changes something provided that the attempt's key is there, and returns the revision of the change.
func (a *attempt) ifOurs(ctx context.Context, what string, op *pb.RequestOp) (int64, error) {
	if a.b.isClosed() {
		return 0, distributed.ErrClosed
	}
	ours, _ := a.key()
	got, err := a.s.txn(ctx, what, &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(a.name, ours)}, Success: []*pb.RequestOp{op},
	})
	switch {
	case err != nil:
		return 0, err
	case !got.Succeeded:
		return 0, distributed.ErrLeaseLost
	}
	return got.Header.Revision, nil
}
