package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Release implements distributed.Lease.
func (l *lease) Release(ctx context.Context) error {
	held := l.Finish()
	if l.a.b.isClosed() {
		return distributed.ErrClosed
	}
	l.begin(held, false)
	return l.a.b.orClosed(l.wait(ctx))
}

// wait waits for the answer to the release.
func (l *lease) wait(ctx context.Context) error {
	timer := time.NewTimer(l.a.s.patience())
	defer timer.Stop()
	why := errSilent
	select {
	case <-l.done:
	case <-l.refused:
	case <-timer.C:
	case <-ctx.Done():
		why = ctx.Err()
	}
	select { // a release that was answered wins
	case <-l.done:
		return l.outcome()
	case <-l.refused:
		return l.refusedBy()
	default:
		return unanswered("release", why)
	}
}

// denied takes the answer of a server that does not delete the node. That is asked again with each sync: the right may be given back.
func (l *lease) denied(err error) {
	l.mu.Lock()
	first, watched := l.refusal == nil, l.watched
	l.refusal, l.watched = err, false
	l.mu.Unlock()
	if first {
		close(l.refused)
	}
	if watched {
		l.Released(err)
	}
}

func (l *lease) refusedBy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal
}

var errSilent = errors.New("the server is silent")

func (l *lease) outcome() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held && l.err == nil {
		return distributed.ErrLeaseLost // it had expired here before the node was deleted
	}
	return l.err
}

// StartRelease implements distributed.AsyncLease.
func (l *lease) StartRelease() bool {
	held := l.Stop()
	if l.a.b.isClosed() {
		return true // it expires
	}
	return l.begin(held, true)
}

// begin starts the release unless it is under way. It reports whether the lease is released.
func (l *lease) begin(held, watched bool) (done bool) {
	l.mu.Lock()
	first := l.phase == kept
	switch {
	case first:
		l.phase, l.held, l.watched = starting, held, watched
	case l.phase == released && l.held && l.err == nil:
		l.mu.Unlock()
		return true
	case l.phase == released && watched:
		l.mu.Unlock()
		l.Released(l.outcome())
		return false
	default:
		l.watched = l.watched || watched
	}
	l.mu.Unlock()
	if first {
		l.a.s.dead.add(&removal{path: l.path, claim: l.claim, denied: l.denied, done: l.removed})
		l.a.end()
	}
	return false
}

// claim is called once, when the deletion is about to be sent. It reports false if an Enter has been quicker, which does both in
// one transaction: a loop that locks again at once. If that Enter has failed since, launch has sent a deletion of its own, which
// knows that it may be the second.
func (l *lease) claim() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != starting {
		return false
	}
	l.phase = releasing
	return true
}

// launch starts the release of a lease whose Enter has failed, perhaps after it was carried out.
func (l *lease) launch() {
	l.mu.Lock()
	l.phase = releasing
	l.mu.Unlock()
	l.a.s.dead.add(&removal{path: l.path, tried: true, denied: l.denied, done: l.removed})
}

// removed takes the answer to the deletion, unless it has become an Enter's.
func (l *lease) removed(err error) {
	l.mu.Lock()
	others := l.phase == adopted
	l.mu.Unlock()
	if !others {
		l.settle(err)
	}
}

// settle takes the answer to the deletion.
func (l *lease) settle(err error) {
	l.mu.Lock()
	if l.phase == released {
		l.mu.Unlock()
		return
	}
	l.phase, l.err = released, releaseAnswer(err)
	close(l.done)
	watched := l.watched
	l.mu.Unlock()
	if watched {
		l.Released(l.outcome())
	}
}

// hook is the Watcher of every lease: a lease that is lost has its node deleted. It passes everything on to the user's.
type hook struct {
	l    *lease
	user distributed.Watcher
}

// Watch implements distributed.AsyncLease.
func (l *lease) Watch(w distributed.Watcher, as distributed.Lease) { l.Lease.Watch(&hook{l, w}, as) }

// LeaseLost implements distributed.Watcher. The caller may hold the attempt's mutex.
func (h *hook) LeaseLost(as distributed.Lease) {
	a := h.l.a
	a.b.due.Remove(&a.item)
	a.s.dead.add(&removal{path: h.l.path, tried: true})
	a.b.forget(a)
	if h.user != nil {
		h.user.LeaseLost(as)
	}
}

// LeaseContended implements distributed.Watcher.
func (h *hook) LeaseContended(as distributed.Lease) {
	if h.user != nil {
		h.user.LeaseContended(as)
	}
}

// LeaseReleased implements distributed.Watcher.
func (h *hook) LeaseReleased(as distributed.Lease, err error) {
	if h.user != nil {
		h.user.LeaseReleased(as, err)
	}
}

// LeaseRenewed implements distributed.RenewalWatcher.
func (h *hook) LeaseRenewed(as distributed.Lease, sent time.Time, err error) {
	if w, ok := h.user.(distributed.RenewalWatcher); ok {
		w.LeaseRenewed(as, sent, err)
	}
}
