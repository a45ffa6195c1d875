package tenure

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Release is for the holder of the turn when no other caller of this instance waits: the lease is released, the place is
// left, and the turn ends. It does not wait for the backend (rule T5). A lease may linger instead.
func (t *Tenure) Release(turn Turn) {
	lingers := t.startLinger(turn)
	if !lingers {
		t.releaseAll(turn)
	}
	turn.Leave()
	if lingers && t.unwelcome() { // another instance or lane, or the timer, could not get at it while we still had the turn
		t.endLinger()
	}
}

// Yield is Release for the holder of a turn whose waiters wait for another lane: its lease keeps them out, and does not linger.
func (t *Tenure) Yield(turn Turn) { // rule P2
	t.releaseAll(turn)
	turn.Leave()
}

// ReleaseAndWait is Release that waits for the backend's answer until ctx ends. Then the release goes on in the background. The
// lease does not linger.
func (t *Tenure) ReleaseAndWait(ctx context.Context, turn Turn) error {
	t.mu.Lock()
	lease := t.current.lease
	if lease == nil {
		t.mu.Unlock()
		t.releaseAll(turn)
		turn.Leave()
		return nil
	}
	t.makePrev()
	t.outgoing.releasing = true
	t.pin(turn)
	t.pinLeaving(turn)
	t.mu.Unlock()
	turn.Leave() // the next caller enters with this lease as prev
	err := lease.Release(ctx)
	if errors.Is(err, distributed.ErrLeaseLost) && t.overtaken(lease) {
		err = nil
	}
	switch {
	case err == nil || errors.Is(err, distributed.ErrLeaseLost):
		t.LeaseReleased(lease, err)
	case lease.StartRelease(): // else the answer comes to LeaseReleased; until then it is prev
		t.LeaseReleased(lease, nil)
	}
	return err
}

// overtaken reports whether an Enter has named prev and so may have released it before a release that was sent as well: then
// others may have had the lock since, and the answer to the release, that the lease is not ours, is no loss. A real loss at this very
// moment is not noticed.
func (t *Tenure) overtaken(prev distributed.Lease) bool { // rule T5
	select {
	case <-prev.Lost():
		return false
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outgoing.prev != prev || t.outgoing.named // not prev: the Enter has been answered
}

// releaseAll starts the release of the lease and leaves the place. It keeps the key as long as that takes.
func (t *Tenure) releaseAll(turn Turn) {
	t.mu.Lock()
	t.makePrev()
	t.leavePlace()
	t.pinLeaving(turn)
	prev, start := t.outgoing.start()
	t.mu.Unlock()
	switch {
	case prev == nil:
	case start && prev.StartRelease():
		t.LeaseReleased(prev, nil)
	default:
		t.mu.Lock()
		if t.outgoing.prev != nil { // else it was answered meanwhile
			t.pin(turn)
		}
		t.mu.Unlock()
	}
}

// releasePrev is for a holder of the turn whose Enter may or may not have released prev.
func (t *Tenure) releasePrev() {
	t.mu.Lock()
	prev, start := t.outgoing.start()
	t.mu.Unlock()
	if start && prev.StartRelease() {
		t.LeaseReleased(prev, nil)
	}
}

// start notes that the release of prev is under way; first: the caller has to start it. The caller holds mu.
func (o *outgoing) start() (prev distributed.Lease, first bool) {
	first = o.prev != nil && !o.releasing
	o.releasing = o.prev != nil
	return o.prev, first
}

// drop forgets prev if it is l, and reports whether the key is to be unpinned. The caller holds mu.
func (o *outgoing) drop(l distributed.Lease) (unpin bool) {
	return o.prev == l && o.clear()
}

// clear forgets prev, and reports whether the key is to be unpinned. The caller holds mu.
func (o *outgoing) clear() (unpin bool) {
	unpin = o.pinned
	if o.gone != nil {
		close(o.gone)
	}
	*o = outgoing{}
	return unpin
}

// makePrev makes the current lease prev. It does not linger any more, but prev takes over its pin. The caller holds mu.
func (t *Tenure) makePrev() {
	if t.current.lease != nil {
		t.outgoing = outgoing{prev: t.current.lease, pinned: t.stopLinger(), gone: t.outgoing.gone}
		t.current.lease = nil
	}
}

// LeaseReleased implements distributed.Watcher. A nil error also says that l needs no more care: the backend has answered what it could.
func (t *Tenure) LeaseReleased(l distributed.Lease, err error) {
	t.mu.Lock()
	var tag any
	var key string
	ours := t.outgoing.prev == l // else an Enter was answered before, and by now t may be another key's
	if ours {
		tag, key = t.tag, t.key
	}
	if t.outgoing.named && errors.Is(err, distributed.ErrLeaseLost) {
		err = nil // see overtaken
	}
	unpin := t.outgoing.drop(l)
	t.mu.Unlock()
	if ours && err != nil && t.group.config.Failed != nil {
		t.group.config.Failed(tag, key, err)
	}
	t.unpin(unpin)
}

// leavePlace starts to leave the place, if there is one, because no caller of this instance waits in it (rule T3). The
// caller holds mu.
func (t *Tenure) leavePlace() {
	if t.place == nil {
		return
	}
	t.leaving++
	t.parting.count++
	go t.leave(t.place, t.tag)
	t.place = nil
}

// leave leaves a place, on a context of its own, since the caller's has ended. The bound is the claim window, within
// which the backend finds out by itself.
func (t *Tenure) leave(place distributed.Place, tag any) {
	defer t.left()
	t.part(place.Leave, tag)
}

// part is leave, or the release of what a place that is to be left was granted.
func (t *Tenure) part(give func(context.Context) error, tag any) {
	c := &t.group.config
	ctx, cancel := context.WithTimeout(context.Background(), distributed.ClaimWindow(c.TTL))
	defer cancel()
	err := give(ctx)
	t.parted()
	if err != nil && c.Failed != nil {
		c.Failed(tag, t.key, err)
	}
}

func (t *Tenure) parted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parting.count--
	if t.parting.count == 0 && t.parting.none != nil {
		close(t.parting.none)
		t.parting.none = nil
	}
}

// settle is for a caller that would not wait: what this instance is giving up, on this lane a place or the grant that it got
// meanwhile, on others a lease as well, is not to refuse it. It waits for about one exchange, and reports whether it did.
func (t *Tenure) settle(ctx context.Context) (waited bool) { // rules T3 and P3
	going := t.going(nil, false)
	for _, other := range t.group.config.Queue.Others(t.key, t.lane) {
		other.EndLinger() // idle, and ours
		going = other.going(going, true)
	}
	if len(going) == 0 {
		return false
	}
	bound := time.NewTimer(distributed.HeartbeatInterval(t.group.config.TTL))
	defer bound.Stop()
	for _, gone := range going {
		select {
		case <-gone:
		case <-bound.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// going adds channels that are closed when the places being left are gone and, if asked, a lease that is being released.
func (t *Tenure) going(all []<-chan struct{}, leases bool) []<-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parting.count > 0 {
		if t.parting.none == nil {
			t.parting.none = make(chan struct{})
		}
		all = append(all, t.parting.none)
	}
	if o := &t.outgoing; leases && (o.releasing || t.current.lingering) { // lingering: the holder of the turn releases or uses it
		if o.gone == nil {
			o.gone = make(chan struct{})
		}
		all = append(all, o.gone)
	}
	return all
}

// left takes back the pin for a place or a lease that is being shared, or sees to it that none is made.
func (t *Tenure) left() {
	t.mu.Lock()
	pinned := t.leaving == 0
	if !pinned {
		t.leaving--
	}
	t.mu.Unlock()
	t.unpin(pinned)
}

// pinLeaving keeps the key until the backend has answered for the places that are being left, and for leases that are being
// shared, so that Close waits for them. Every turn that ends with nobody behind it comes by here. The caller holds mu and the turn.
func (t *Tenure) pinLeaving(turn Turn) {
	for ; t.leaving > 0; t.leaving-- {
		turn.Pin()
	}
}

// pin keeps the key for prev. The caller holds mu and the turn.
func (t *Tenure) pin(turn Turn) {
	if !t.outgoing.pinned {
		t.outgoing.pinned = true
		turn.Pin()
	}
}

// unpin takes back a pin of the key, if there was one. The caller does not hold mu.
func (t *Tenure) unpin(pinned bool) {
	if pinned {
		t.group.config.Queue.Unpin(t.key, t.lane)
	}
}
