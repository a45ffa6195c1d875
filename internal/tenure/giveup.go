package tenure

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// GiveUp is for the holder of the turn who finds that nobody of this instance waits: what is at hand goes back to the
// backend, and the turn ends. It does not wait for that. A lease may linger instead.
func (t *Tenure) GiveUp(turn Turn) {
	lingers := t.startLinger(turn)
	if !lingers {
		t.giveBack(turn)
	}
	turn.Leave()
	if lingers && t.unwelcome() { // somebody wanted the lease while we still had the turn, and could not get at it
		t.endLinger()
	}
}

// GiveUpAndWait is GiveUp that waits for the backend's answer to the release, until ctx ends; then that goes on in the
// background. The lease does not linger.
func (t *Tenure) GiveUpAndWait(ctx context.Context, turn Turn) error {
	t.mu.Lock()
	lease := t.lease
	if lease == nil {
		t.mu.Unlock()
		t.giveBack(turn)
		turn.Leave()
		return nil
	}
	t.retire()
	t.releasing = true
	t.pin(turn)
	t.pinLeaving(turn)
	t.mu.Unlock()
	turn.Leave() // the next caller enters with this lease as prev
	err := lease.Release(ctx)
	switch {
	case err == nil || errors.Is(err, distributed.ErrLeaseLost):
		t.LeaseReleased(lease, err)
	case lease.StartRelease(): // else the answer comes to LeaseReleased; until then it is prev
		t.answered(lease)
	}
	return err
}

// giveBack starts what returns lease and place to the backend, and keeps the key as long as that takes.
func (t *Tenure) giveBack(turn Turn) {
	t.mu.Lock()
	t.retire()
	t.part()
	t.pinLeaving(turn)
	prev, start := t.releasePrev()
	t.mu.Unlock()
	switch {
	case prev == nil:
	case start && prev.StartRelease():
		t.answered(prev)
	default:
		t.mu.Lock()
		if t.prev != nil { // else it was answered meanwhile
			t.pin(turn)
		}
		t.mu.Unlock()
	}
}

// giveBackPrev is for a holder of the turn whose Enter may or may not have given up prev.
func (t *Tenure) giveBackPrev() {
	t.mu.Lock()
	prev, start := t.releasePrev()
	t.mu.Unlock()
	if start && prev.StartRelease() {
		t.answered(prev)
	}
}

// releasePrev notes that the release of prev is under way; start: the caller has to start it. The caller holds mu.
func (t *Tenure) releasePrev() (prev distributed.AsyncLease, start bool) {
	start = t.prev != nil && !t.releasing
	t.releasing = t.prev != nil
	return t.prev, start
}

// retire makes the lease at hand prev. It is lingering no more, but prev takes over its pin. The caller holds mu.
func (t *Tenure) retire() {
	if t.lease == nil {
		return
	}
	t.prev, t.releasing, t.pinned, t.lease = t.lease, false, t.stopLinger(), nil
}

// part starts what gives up the place at hand, if there is one. The caller holds mu.
func (t *Tenure) part() {
	if t.place == nil {
		return
	}
	t.leaving++
	go t.leave(t.place, t.tag)
	t.place = nil
}

// pinLeaving keeps the key until the places that are on their way back have arrived, so that Close waits for them. Every
// turn that ends with nobody behind it comes by here. The caller holds mu and the turn.
func (t *Tenure) pinLeaving(turn Turn) {
	for ; t.leaving > 0; t.leaving-- {
		turn.Pin()
	}
}

// pin keeps the key for prev. The caller holds mu and the turn.
func (t *Tenure) pin(turn Turn) {
	if !t.pinned {
		t.pinned = true
		turn.Pin()
	}
}

// LeaseReleased implements distributed.Watcher.
func (t *Tenure) LeaseReleased(l distributed.Lease, err error) {
	t.mu.Lock()
	var tag any
	var key string
	ours := t.prev == l // else an Enter was answered before, and by now t may be another key's
	if ours {
		tag, key = t.tag, t.key
	}
	unpin := t.forget(l)
	t.mu.Unlock()
	if ours && err != nil && t.group.config.Failed != nil {
		t.group.config.Failed(tag, key, err)
	}
	t.unpin(unpin)
}

// answered notes that l needs no more care: it is released, or the backend said what it could.
func (t *Tenure) answered(l distributed.Lease) {
	t.mu.Lock()
	unpin := t.forget(l)
	t.mu.Unlock()
	t.unpin(unpin)
}

// unpin takes back a pin of the key, if there was one. The caller does not hold mu.
func (t *Tenure) unpin(pinned bool) {
	if pinned {
		t.group.config.Queue.Unpin(t.key)
	}
}

// forget drops prev if it is l, and reports whether the key is to be unpinned. The caller holds mu.
func (t *Tenure) forget(l distributed.Lease) bool {
	if t.prev != l {
		return false
	}
	unpin := t.pinned
	t.prev, t.releasing, t.pinned = nil, false, false
	return unpin
}

// leave gives up a place, on a context of its own, for the caller's has ended. The bound is the claim window, within
// which the backend finds out by itself.
func (t *Tenure) leave(place distributed.Place, tag any) {
	defer t.left()
	c := &t.group.config
	ctx, cancel := context.WithTimeout(context.Background(), distributed.ClaimWindow(c.TTL))
	defer cancel()
	if err := place.Leave(ctx); err != nil && c.Failed != nil {
		c.Failed(tag, t.key, err)
	}
}

// left takes back the pin for a place, or sees to it that none is made.
func (t *Tenure) left() {
	t.mu.Lock()
	pinned := t.leaving == 0
	if !pinned {
		t.leaving--
	}
	t.mu.Unlock()
	t.unpin(pinned)
}

// startLinger keeps the idle lease at hand for the next caller, if that is wanted and nobody else wants it.
func (t *Tenure) startLinger(turn Turn) bool {
	g := t.group
	if g.config.Linger == 0 || g.closed() {
		return false
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == nil || t.lease.Contended() || !t.serves(t.mode, now) {
		return false
	}
	if !t.lingering { // else nobody has used it since it began to
		t.lingering, t.lingered = true, true
		turn.Pin()
	}
	t.pinLeaving(turn)
	g.linger.Put(&t.linger, now.Add(g.config.Linger))
	return true
}

// stopLinger ends the lingering because the lease is used, or gone. It reports whether the key is to be unpinned. The
// caller holds mu.
func (t *Tenure) stopLinger() bool {
	was := t.lingering
	if was {
		t.lingering = false
		t.group.linger.Remove(&t.linger)
	}
	return was
}

// unwelcome reports whether a lingering lease should go back now.
func (t *Tenure) unwelcome() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lingering && (t.lease.Contended() || t.group.closed())
}

// endLinger gives a lingering lease back, if it still is one and nobody has the turn; whoever has it will see to the
// lease when it is through.
func (t *Tenure) endLinger() {
	turn, ok := t.group.config.Queue.Idle(t.key)
	if !ok {
		return
	}
	// When t is over, this is the turn of a later tenure of the key. As long as we have it, nobody else can end that one's
	// lingering; so we do, for one who has just tried in vain will not try again.
	of := turn.Baton()
	of.mu.Lock()
	lingering := of.lingering
	of.mu.Unlock()
	if lingering { // else the lease has gone meanwhile
		of.giveBack(turn)
	}
	turn.Leave()
}

// EndLinger is for Close.
func (t *Tenure) EndLinger() {
	t.mu.Lock()
	lingering := t.lingering
	t.mu.Unlock()
	if lingering {
		t.endLinger()
	}
}

// LeaseContended implements distributed.Watcher.
func (t *Tenure) LeaseContended(l distributed.Lease) {
	t.mu.Lock()
	lingering := t.lingering && t.lease == l
	t.mu.Unlock()
	if lingering {
		t.endLinger()
	}
}
