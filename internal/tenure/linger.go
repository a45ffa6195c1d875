package tenure

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// wantedFor is how long a key does not linger that another instance wanted while its lease was kept for nobody: a caller with NoWait that
// was refused tries again within that time, whatever the rhythm of our callers, and finds the lock free between two of them.
const wantedFor = 10 * time.Minute

// awaitedFor is how long a key does not linger by itself that another instance waited for.
const awaitedFor = time.Second

// startLinger keeps the unused lease for the next caller, if that is configured and no other instance wants it.
func (t *Tenure) startLinger(turn Turn) bool {
	g := t.group
	if g.config.Linger == 0 || g.closed() {
		return false
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch lease := t.current.lease; {
	case lease == nil || !t.serves(t.mode, now) || g.wanted.within(t.key, wantedFor):
		return false
	case wanted(lease):
		if !lease.Contended() { // else who waits gets it
			g.wanted.note(t.key)
		}
		return false
	case g.config.Adaptive && !t.steady(lease):
		return false
	}
	if !t.current.lingering { // else nobody has used it since it began to
		t.current.lingering, t.lingered = true, true
		turn.Pin()
	}
	t.pinLeaving(turn)
	t.current.lingers = now.Add(g.config.Linger)
	g.linger.Put(&t.linger, t.current.lingers)
	return true
}

// steady reports that the key was asked for again while its lease before this one was being released, and that nobody else is likely to
// lose by it if this lease lingers for a moment: who is refused is heard, and no other instance has waited lately. The caller holds mu.
func (t *Tenure) steady(lease distributed.Lease) bool {
	return t.again && lease.HearsRefusals() && !t.group.awaited.within(t.key, awaitedFor)
}

// wanted reports that another instance waits for the lease, or was refused it since it was granted: then it does not linger. One that
// was refused does not break into a tenure: the callers of this instance that come one after the other are served as before.
func wanted(l distributed.Lease) bool { // rule T12
	return l.Contended() || l.Wanted()
}

// wantedIdle notes that another instance wants the lease while it lingers. One that waits gets it. But where a refusal does not tell, it may have
// been refused first, and wait for a moment. The caller holds mu.
func (t *Tenure) wantedIdle(contended bool) {
	if !contended || !t.group.config.Adaptive {
		t.group.wanted.note(t.key)
	}
}

// stopLinger ends the lingering because the lease is used, or gone. It reports whether the key is to be unpinned. The
// caller holds mu.
func (t *Tenure) stopLinger() bool {
	was := t.current.lingering
	if was {
		t.current.lingering = false
		t.group.linger.Remove(&t.linger)
	}
	return was
}

// reuse is stopLinger for a lease that is not released. Those that wait for that need not. The caller holds mu.
func (t *Tenure) reuse() (unpin bool) {
	if t.current.lingering {
		t.outgoing.clear()
	}
	return t.stopLinger()
}

// unwelcome reports whether a lingering lease should be released now. It is asked once the turn has been left, because all that ends
// the lingering needs the turn, and may have found it taken: whoever wants the lease, Close, and the timer, which does not fire again.
// What comes later than this look finds the turn free.
func (t *Tenure) unwelcome() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current.lingering && wanted(t.current.lease) {
		t.wantedIdle(t.current.lease.Contended())
		return true
	}
	return t.current.lingering && (t.group.closed() || t.outgoing.gone != nil || !time.Now().Before(t.current.lingers))
}

// endLinger releases a lingering lease, if it still is one and nobody has the turn; else the holder of the turn sees to
// the lease when it ends.
func (t *Tenure) endLinger() {
	turn, ok := t.group.config.Queue.Idle(t.key, t.lane)
	if !ok {
		return
	}
	// When t is not in use any more, this is the turn of a later tenure of the key. As long as we have it, nobody else can
	// end that one's lingering; so we do, since one that has just tried in vain will not try again.
	of := turn.Baton()
	of.mu.Lock()
	lingering := of.current.lingering
	of.mu.Unlock()
	if lingering { // else the lease has gone meanwhile
		of.releaseAll(turn)
	}
	turn.Leave()
}

// EndLinger is for Close.
func (t *Tenure) EndLinger() {
	t.mu.Lock()
	lingering := t.current.lingering
	t.mu.Unlock()
	if lingering {
		t.endLinger()
	}
}
