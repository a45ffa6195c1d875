package distributed

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/deadline"
)

// Term is the life of one lease as this machine sees it: until when it lasts, whether it is being renewed, and who is
// told of its end. Backends embed it in their leases, which gives these most of the Lease interface, and start it
// with Keeper.Keep.
//
// A term is kept until one of three things happens, of which exactly one wins (decided under mu):
//
//	kept ── End, or its time is over ──▶ lost       Lost is closed, the Watcher is told
//	kept ── Finish (a release begins) ──▶ finished   silence; Lost is never closed
//	kept ── Abandon ──▶ abandoned ── its time is over, or End ──▶ lost
//	                              └─ Finish ──▶ finished
type Term struct {
	keeper *Keeper
	lease  Watched       // the lease that embeds this term; set by Keep, then read only
	ttl    time.Duration // set by Keep, then read only
	item   deadline.Item[*Term]
	wanted atomic.Bool
	state  atomic.Uint32        // termState; written under mu, read without: it only goes up
	now    atomic.Pointer[view] // the same; what it points to never changes

	mu      sync.Mutex // guards all below; never held while calling out
	renewAt time.Time
	asked   time.Time // when the renewal under way was sent; zero: none is
	watcher Watcher
	lost    chan struct{} // made when somebody asks for it

	first view // what now points to first
}

// view is what is asked of a term at every turn, and changes with a renewal only.
type view struct {
	until  time.Time
	due    time.Time // when the renewal falls due whose answer will replace this view
	failed bool      // it was tried, and had no answer
}

type termState = uint32

const (
	kept termState = iota
	abandoned
	finished
	lost
)

// Until implements Lease.
func (t *Term) Until() time.Time { return t.now.Load().until }

// TTL is what the lease was asked for with.
func (t *Term) TTL() time.Duration { return t.ttl }

// Healthy implements Lease.
func (t *Term) Healthy() bool {
	_, healthy := t.At(time.Now())
	return healthy
}

// At implements Watched.
func (t *Term) At(now time.Time) (left time.Duration, healthy bool) {
	v := t.now.Load()
	left = Left(now, v.until)
	late := now.Sub(v.due) > HeartbeatInterval(t.ttl)
	return left, t.state.Load() == kept && !v.failed && !late && left > 0
}

// Contended implements Lease.
func (t *Term) Contended() bool { return t.wanted.Load() }

// Abandon implements Lease.
func (t *Term) Abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Load() == kept {
		t.state.Store(abandoned)
		t.keeper.set.Put(&t.item, t.Until()) // in place of the next renewal
	}
}

// Lost implements Lease.
func (t *Term) Lost() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.lost = make(chan struct{})
		if t.state.Load() == lost {
			close(t.lost)
		}
	}
	return t.lost
}

// Watch implements Watched.
func (t *Term) Watch(w Watcher) {
	t.mu.Lock()
	t.watcher = w
	gone, wanted := t.state.Load() == lost, t.wanted.Load()
	t.mu.Unlock()
	if gone {
		w.LeaseLost(t.lease)
	}
	if wanted {
		w.LeaseWanted(t.lease)
	}
}

// Want is called by the backend when it learns that another instance waits. Repeated calls do nothing, and nobody is
// told once a release has begun.
func (t *Term) Want() {
	if t.wanted.Load() {
		return
	}
	t.mu.Lock()
	first := !t.wanted.Swap(true) // under mu, so that either we find the watcher or Watch finds this: one of us tells it
	w := t.watcher
	told := first && w != nil && t.state.Load() != finished
	t.mu.Unlock()
	if told {
		w.LeaseWanted(t.lease)
	}
}

// Renewed is called by the backend when the lease has been extended, or claimed. An earlier end than the one known is
// ignored: answers may overtake each other, and both are promises of the backend.
func (t *Term) Renewed(until time.Time) {
	t.mu.Lock()
	sent, w, over := t.asked, t.watcher, t.state.Load() >= finished
	t.extend(until)
	t.mu.Unlock()
	if !over {
		t.tellRenewal(w, sent, nil)
	}
}

// extend takes the answer to a renewal. The caller holds mu.
func (t *Term) extend(until time.Time) {
	t.asked = time.Time{}
	latest := t.Until()
	if until.After(latest) {
		latest = until
	}
	next := t.keeper.grid(until.Add(Drift(t.ttl)-t.ttl+RenewInterval(t.ttl)), t.ttl) // T/3 after it was sent
	t.now.Store(&view{until: latest, due: next})
	switch t.state.Load() {
	case kept:
		t.renewAt = next
		t.keeper.set.Put(&t.item, earlier(t.renewAt, latest))
	case abandoned: // a renewal that was under way then
		t.keeper.set.Put(&t.item, latest)
	}
}

// End is called by the backend when it learns that the lease is gone. It reports whether the lease was held until now.
func (t *Term) End() bool {
	t.mu.Lock()
	if t.state.Load() >= finished {
		t.mu.Unlock()
		return false
	}
	t.state.Store(lost)
	if t.lost != nil {
		close(t.lost)
	}
	w := t.watcher
	t.keeper.set.Remove(&t.item)
	t.mu.Unlock()
	if w != nil {
		w.LeaseLost(t.lease)
	}
	return true
}

// Finish is called by the backend when a release begins: nothing is renewed or reported any more. It returns false if
// the lease is lost, by the clocks too; for a term that was finished before it returns true again.
func (t *Term) Finish() bool {
	if t.state.Load() < finished && Over(time.Now(), t.Until()) {
		t.End()
	}
	return t.Stop()
}

// Stop is Finish that does not look at the clocks: for a release of which the backend will say what it was worth.
func (t *Term) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Load() < finished {
		t.state.Store(finished)
		t.keeper.set.Remove(&t.item)
	}
	return t.state.Load() == finished
}

// Released tells the Watcher how a release ended that StartRelease began.
func (t *Term) Released(err error) {
	if w := t.watched(); w != nil {
		w.LeaseReleased(t.lease, err)
	}
}

func (t *Term) watched() Watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watcher
}

// due is what the keeper does when the term's moment has come. It reports whether the lease is to be renewed now.
func (t *Term) due(now time.Time) bool {
	t.mu.Lock()
	if t.state.Load() >= finished {
		t.mu.Unlock()
		return false
	}
	until := t.Until()
	if Over(now, until) {
		t.mu.Unlock()
		t.End()
		return false
	}
	defer t.mu.Unlock()
	if t.keeper.closed.Load() {
		t.state.Store(abandoned)
	}
	renew := t.state.Load() == kept && t.asked.IsZero() && !now.Before(t.renewAt)
	if renew {
		t.asked = now
	}
	if renew || t.state.Load() == abandoned || !t.asked.IsZero() {
		t.keeper.set.Put(&t.item, until)
	} else {
		t.keeper.set.Put(&t.item, earlier(t.renewAt, until))
	}
	return renew
}

// unasked takes back that the term is to be renewed now; its time for it stays.
func (t *Term) unasked(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked.Equal(asked) {
		t.asked = time.Time{}
	}
}

// Postpone is called by the backend, in place of the renewal that it was asked for, when it is not the time for that yet:
// it will be asked again soon, and nothing has failed.
func (t *Term) Postpone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Load() != kept || t.asked.IsZero() {
		return
	}
	t.asked = time.Time{}
	t.renewAt = time.Now().Add(retryInterval(t.ttl))
	at := *t.now.Load()
	at.due = t.renewAt // or the lease would count as late meanwhile
	t.now.Store(&at)
	t.keeper.set.Put(&t.item, earlier(t.renewAt, at.until))
}

// unanswered plans the next try when the renewal sent at asked has come back without an answer.
func (t *Term) unanswered(asked, now time.Time) {
	t.mu.Lock()
	again, w := t.retry(asked, now), t.watcher
	t.mu.Unlock()
	if again {
		t.tellRenewal(w, asked, ErrUnavailable)
	}
}

// retry reports whether there is to be another try. The caller holds mu.
func (t *Term) retry(asked, now time.Time) bool {
	if t.state.Load() != kept || !t.asked.Equal(asked) {
		return false // answered, or over; after an answer the next one may be under way before the rest of this batch is back
	}
	at := *t.now.Load()
	at.failed = true
	t.now.Store(&at)
	t.asked = time.Time{}
	t.renewAt = now.Add(retryInterval(t.ttl))
	t.keeper.set.Put(&t.item, earlier(t.renewAt, at.until))
	return true
}

// tellRenewal is called without mu.
func (t *Term) tellRenewal(w Watcher, sent time.Time, err error) {
	if r, ok := w.(RenewalWatcher); ok {
		r.LeaseRenewed(t.lease, sent, err)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
