package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// lease is a node that is first in line. keepalive.Lease notices its end; what is here is how long the session vouches for it, its
// fences and its release.
//
//	kept ── Release, StartRelease ──▶ starting ── sent ──▶ releasing ── answer ──▶ released
//	kept, starting ── Prev of an Enter ──▶ adopted: the Enter deletes it ──▶ released
//	                                       └─ the Enter has failed ──▶ releasing
//
// A lease that is lost while the session lives has its node deleted at once.
type lease struct {
	keepalive.Lease
	a       *attempt
	path    string
	window  time.Time // until then it lasts without being claimed
	fences  fences
	hook    hook        // the Watcher before the user's
	changed atomic.Bool // the watch has fired since the latest look

	mu      sync.Mutex // guards all below
	phase   phase
	held    bool // when its release began
	watched bool // the answer goes to the Watcher
	err     error
	refusal error         // of the latest try to delete the node, by the server
	refused chan struct{} // closed with the first of these
	done    chan struct{} // closed once released
}

type phase uint8

const (
	kept phase = iota
	starting
	adopted
	releasing
	released
)

const (
	// downgradedData is the content of an exclusive request's node whose holder has made it a shared one: none. Before that it is the
	// instance, which may have any name but an empty one.
	downgradedData = ""
	// lookPause is how long after its grant, or a change, a holder looks whether somebody waits: most holds are shorter, and never
	// pay for it.
	lookPause = 2 * time.Millisecond
)

// keptFor is how long a renewal makes a lease last, as the Keeper knows it: so it renews when two fifths of the time-out are
// left, which is more than the third of a TTL that a hand-off takes. After a renewal three fifths are left.
func keptFor(timeout time.Duration) time.Duration { return timeout * 3 / 5 }

// newLease makes the lease of a grant. It lasts for the claim window, or as long as the session if that is shorter. The
// caller holds a.mu.
func newLease(a *attempt, g grant) *lease {
	l := &lease{a: a, path: a.dir + "/" + a.node, refused: make(chan struct{}), done: make(chan struct{})}
	if l.fences.permit = a.limit > 0; a.shared() && a.limit == 0 {
		l.fences.share(g.fence)
	} else {
		l.fences.open(g.fence)
	}
	window, length := distributed.ClaimWindow(a.ttl), keptFor(a.s.timeout())
	l.window = distributed.Validity(g.since, window)
	until := earlier(l.window, a.s.until())
	a.b.keeper.Keep(&l.Lease, l, length, until, g.since.Add(min(window, length)/3))
	l.hook.l = l
	l.Lease.Watch(&l.hook, l)
	l.SetContended(g.contended)
	a.plan(l.nextLook(lookPause))
	return l
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// nextLook is when to look again whether somebody waits: as a renewal of a backend without sessions would; without a waiter there
// is a watch, and the look is a precaution.
func (l *lease) nextLook(watching time.Duration) time.Duration {
	if l.Contended() {
		return distributed.RenewInterval(min(l.a.ttl, l.a.s.timeout()))
	}
	return watching
}

// renew extends the lease by what the session has proven. All leases share its syncs. An unread grant is not claimed:
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

// At implements distributed.AsyncLease. A lease without connection is not healthy.
func (l *lease) At(now time.Time) (time.Duration, bool) {
	left, healthy := l.Lease.At(now)
	return left, healthy && l.a.s.healthy(now)
}

// Healthy implements distributed.Lease.
func (l *lease) Healthy() bool {
	_, healthy := l.At(time.Now())
	return healthy
}

// look finds out whether another instance waits, and whether the node is still there. As long as nobody waits, a watch tells.
// After its event, and while somebody waits, the holder looks without setting one, or it would be woken by every waiter. A shared one
// watches the first that waits: should that leave, readers may join again.
func (l *lease) look(ctx context.Context) {
	a := l.a
	if l.isEnding() {
		return
	}
	watch := !l.Contended() && !l.changed.Swap(false)
	v, err := a.read(ctx, watch)
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && v.i < 0:
		l.End()
		return
	case err == nil:
		l.regard(ctx, v)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state != leased:
	case err != nil:
		a.plan(a.s.beat())
	case l.changed.Load(): // by an event that came while we looked, perhaps of an earlier look's watch: look again
		a.plan(lookPause)
	case !watch && !l.Contended(): // what has changed was nothing, or has gone
		a.again = true
	default:
		a.plan(l.nextLook(min(a.ttl, a.s.timeout())))
	}
}

// regard notes whether somebody waits.
func (l *lease) regard(ctx context.Context, v view) {
	n, waited := v.q.waiter(v.i, l.isShared())
	l.SetContended(waited)
	if path := l.a.dir + "/" + n.name; waited && l.isShared() && !l.a.isFollowed(path) {
		if _, err := l.a.follow(ctx, path); errors.Is(err, zk.ErrNoNode) { // it has left meanwhile
			l.changed.Store(true)
		}
	}
}

// isShared reports that it is, or that it was downgraded.
func (l *lease) isShared() bool { return l.a.shared() || l.fences.isShared() }

func (l *lease) isEnding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase != kept || distributed.Over(time.Now(), l.Until())
}

// Downgrade implements distributed.Downgrader: the node has no content from now on. Readers that wait for it watch it.
func (l *lease) Downgrade(ctx context.Context) error {
	if l.isShared() {
		return nil
	}
	if l.a.b.isClosed() {
		return distributed.ErrClosed
	}
	_, err := ask(ctx, l.a.s, "downgrade", func() (struct{}, error) {
		stat, err := l.a.s.conn.Set(l.path, []byte(downgradedData), -1)
		if err == nil {
			var fence uint64
			if fence, err = fenceOf(stat.Mzxid); err == nil {
				l.fences.share(fence)
			}
		}
		return struct{}{}, err
	}, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return distributed.ErrLeaseLost
	}
	return err
}

// NextFence implements distributed.Lease. More are fetched in the background when half are used.
func (l *lease) NextFence() (uint64, bool) {
	fence, ok, low := l.fences.draw()
	if low && l.a.b.begin() {
		go func() {
			defer l.a.b.tasks.Done()
			ctx, cancel := context.WithTimeout(l.a.s.ctx, l.a.s.silence())
			defer cancel()
			_ = l.Refill(ctx) // its user asks again when it runs out
		}()
	}
	return fence, ok
}

// Refill implements distributed.Lease: any change has a new zxid. It is made only if our node is there, so its zxid
// comes before that of our deletion, which lets the next one in.
func (l *lease) Refill(ctx context.Context) error {
	if l.fences.isShared() {
		return nil
	}
	if l.a.b.isClosed() {
		return distributed.ErrClosed
	}
	zxid, err := l.a.mark(ctx, l.path)
	if errors.Is(err, zk.ErrNoNode) {
		return distributed.ErrLeaseLost
	}
	if err != nil {
		return err
	}
	fence, err := fenceOf(zxid)
	if err == nil {
		l.fences.open(fence)
	}
	return err
}
