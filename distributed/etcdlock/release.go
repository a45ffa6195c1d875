package etcdlock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Release implements distributed.Lease.
func (l *lease) Release(ctx context.Context) error {
	held := l.Finish()
	if l.a.b.isClosed() {
		return distributed.ErrClosed
	}
	if one, _ := l.removal(held, false); one != nil {
		l.a.s.dead.addHere(ctx, one)
	}
	return l.a.b.orClosed(l.wait(ctx))
}

// wait waits for the answer to the release. One that is refused goes on, in case that the user gets the right.
func (l *lease) wait(ctx context.Context) error {
	timer := time.NewTimer(l.a.s.tryTime())
	defer timer.Stop()
	var err error
	select {
	case <-l.done:
	case err = <-l.refused:
	case <-timer.C:
		err = unanswered("release", errSilent)
	case <-ctx.Done():
		err = unanswered("release", ctx.Err())
	}
	select { // a release that was answered wins
	case <-l.done:
		return l.outcome()
	default:
		return err
	}
}

func (l *lease) outcome() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held && l.err == nil {
		return distributed.ErrLeaseLost // it had expired here before the key was deleted
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
	one, done := l.removal(held, watched)
	if one != nil {
		l.a.s.dead.add(one)
	}
	return done
}

// removal returns the deletion that a release begins with; nil: it is under way, or done.
func (l *lease) removal(held, watched bool) (one *removal, done bool) {
	l.mu.Lock()
	first := l.phase == kept
	switch {
	case first:
		l.phase, l.held, l.watched = starting, held, watched
	case l.phase == released && l.held && l.err == nil:
		l.mu.Unlock()
		return nil, true
	case l.phase == released && watched:
		l.mu.Unlock()
		l.Released(l.outcome())
		return nil, false
	default:
		l.watched = l.watched || watched
	}
	l.mu.Unlock()
	if !first {
		return nil, false
	}
	l.a.end()
	return &removal{a: l.a, claim: l.claim, heard: l.heard, done: l.removed}, false
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
	l.a.s.dead.add(&removal{a: l.a, tried: true, heard: l.heard, done: l.removed})
}

// heard takes a refusal of the deletion, for one who waits for the release.
func (l *lease) heard(err error) {
	select {
	case l.refused <- err:
	default:
	}
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

// hook is the Watcher of every lease: a lease that is lost has its key deleted. It passes everything on to the user's.
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
	a.b.forget(a)
	a.s.dead.add(&removal{a: a, tried: true})
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
