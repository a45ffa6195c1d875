package keepalive

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
)

// Lease is what this machine knows of one lease: how long it lasts, whether it is being renewed, and who is notified of
// its end. A backend embeds it in its own lease type, which gives that most of distributed.Lease, and starts it
// with Keeper.Keep.
//
// A lease is kept until one of three things happens. Exactly one of them wins. The winner is decided under mu (rule K3):
//
//	kept ── End, or it expires ──▶ lost             Lost is closed, the Watcher is notified
//	kept ── Finish (a release begins) ──▶ finished   silence; Lost is never closed
//	kept ── Abandon ──▶ abandoned ── it expires, or End ──▶ lost
//	                              └─ Finish ──▶ finished
type Lease struct {
	keeper    *Keeper
	outer     Kept          // the backend's lease, which embeds this one; set by Keep, then read only
	ttl       time.Duration // set by Keep, then read only
	item      deadline.Item[*Lease]
	contended atomic.Uint32            // bits: see waited
	state     atomic.Uint32            // a leaseState; written under mu, read without: it only goes up
	now       atomic.Pointer[validity] // written under mu, read without; what it points to never changes

	mu      sync.Mutex // guards all below; never held while calling out
	renewAt time.Time
	asked   time.Time // when the renewal under way was sent; zero: none is
	watcher distributed.Watcher
	as      distributed.Lease // what the watcher calls this lease
	lost    chan struct{}     // made when somebody asks for it

	first validity // the first value of now
}

// Kept is a backend's lease. It embeds a Lease, whose WasLost and Fault do nothing, and may have its own.
type Kept interface {
	distributed.Lease
	// WasLost is called once, before Lost is closed and the Watcher is notified: then a release finds out that nothing is left to release.
	WasLost()
	// Fault is why what keeps the lease alive, such as a session, was not answered lately, and Is ErrUnavailable. nil: it was, or the
	// reason is not known. It is called with a mutex held, and must not call the Lease.
	Fault() error
}

// WasLost implements Kept.
func (l *Lease) WasLost() {}

// Fault implements Kept.
func (l *Lease) Fault() error { return nil }

// validity is what every turn reads. Only a renewal replaces it.
type validity struct {
	until  time.Time
	due    time.Time              // when the renewal falls due whose answer will replace this one
	failed *distributed.LostError // why the latest try has failed; nil: it was answered, or there was none
}

// The bits of Lease.contended, in one word because every lease has them.
const (
	waited uint32 = 1 << iota // another instance waits
	wanted                    // another instance was refused it; stays

	news = waited | wanted
	told = 2 // bits that news is shifted by: so the watcher was notified last; changed under mu
)

type leaseState = uint32

const (
	kept leaseState = iota
	abandoned
	finished
	lost
)

// Until implements distributed.Lease.
func (l *Lease) Until() time.Time { return l.now.Load().until }

// Healthy implements distributed.Lease.
func (l *Lease) Healthy() bool {
	_, healthy := l.At(time.Now())
	return healthy
}

// latePerTTL is the part of T after which a renewal is overdue: a slow network is allowed for, and T/3 is left then.
const latePerTTL = 4

// At implements distributed.Lease.
func (l *Lease) At(now time.Time) (left time.Duration, healthy bool) {
	v := l.now.Load()
	left = distributed.Left(now, v.until)
	late := now.Sub(v.due) > l.ttl/latePerTTL
	return left, l.state.Load() == kept && v.failed == nil && !late && left > 0
}

// Contended implements distributed.Lease.
func (l *Lease) Contended() bool { return l.contended.Load()&waited != 0 }

// Abandon implements distributed.Lease.
func (l *Lease) Abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() == kept {
		l.state.Store(abandoned) // the next call of due moves the item to the lease's end
	}
}

// Lost implements distributed.Lease.
func (l *Lease) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.state.Load() == lost {
			close(l.lost)
		}
	}
	return l.lost
}

// Watch implements distributed.Lease.
func (l *Lease) Watch(w distributed.Watcher, as distributed.Lease) {
	l.mu.Lock()
	l.watcher, l.as = w, as
	gone, bits := l.state.Load() == lost, l.contended.Load()
	l.tell(bits)
	l.mu.Unlock()
	if gone {
		w.LeaseLost(as)
	}
	if bits&news != 0 {
		w.LeaseContended(as)
	}
}

// SetContended is called by the backend when it learns that another instance waits, or that none waits any more. Repeated
// calls do nothing, and the Watcher is not notified once a release has begun.
func (l *Lease) SetContended(waits bool) {
	if l.Contend(waits) {
		l.NotifyContended()
	}
}

// Contend is SetContended without the notification, for a backend that decides under a lock of its own. If it reports
// true, NotifyContended has to be called once that lock is free.
func (l *Lease) Contend(waits bool) (changed bool) {
	switch {
	case l.Contended() == waits:
		return false
	case waits:
		return l.contended.Or(waited)&waited == 0
	}
	return l.contended.And(^waited)&waited != 0
}

// Wanted implements distributed.Lease.
func (l *Lease) Wanted() bool { return l.contended.Load()&wanted != 0 }

// HearsRefusals reports that a request with NoWait that is refused sends word to the holder, and Want is called at once. Else it is called
// late, or never.
func (l *Lease) HearsRefusals() bool { return l.keeper.HearsRefusals }

// Want is called by the backend when it learns that another instance was refused the lease. If it reports true,
// NotifyContended has to be called, once no lock is held. Repeated calls do nothing.
func (l *Lease) Want() (changed bool) { return !l.Wanted() && l.contended.Or(wanted)&wanted == 0 }

// NotifyContended notifies the Watcher if it does not know yet what Contended and Wanted say.
func (l *Lease) NotifyContended() {
	l.mu.Lock()
	w, as, bits := l.watcher, l.as, l.contended.Load()
	notify := w != nil && bits&news != bits>>told && l.state.Load() != finished // w is nil: Watch sees to it
	if notify {
		l.tell(bits)
	}
	l.mu.Unlock()
	if notify {
		w.LeaseContended(as)
	}
}

// tell notes that the watcher is notified of what bits say. The caller holds mu.
func (l *Lease) tell(bits uint32) {
	if bits&news != bits>>told {
		l.contended.And(news)
		l.contended.Or(bits & news << told)
	}
}

// Renewed is called by the backend when the lease has been extended, or claimed. An earlier end than the one known is
// ignored: answers may overtake each other, and both are promises of the backend. An answer that comes after the lease's end, before that
// is noticed, counts as well: so it must be one that the service gives only if no other was granted the lock meanwhile. A lost lease is
// not extended.
func (l *Lease) Renewed(until time.Time) {
	l.mu.Lock()
	sent, ended := l.asked, l.state.Load() >= finished
	w, as := l.watcher, l.as
	l.extend(until)
	l.mu.Unlock()
	if !ended && w != nil {
		w.LeaseRenewed(as, sent, nil)
	}
}

// extend takes the answer to a renewal. The caller holds mu.
func (l *Lease) extend(until time.Time) {
	l.asked = time.Time{}
	if l.state.Load() == lost {
		return
	}
	before, sent := l.now.Load(), until.Add(distributed.Drift(l.ttl)-l.ttl)
	latest := before.until
	if until.After(latest) {
		latest = until
	}
	if pause := l.ttl / behindPerTTL; before.failed == nil && sent.Sub(l.renewAt) > pause { // rule K6
		l.keeper.behind.Store(int64(sent.Add(pause).Sub(l.keeper.base)))
	}
	l.renewAt = l.keeper.grid(sent.Add(distributed.RenewInterval(l.ttl)), l.ttl)
	l.now.Store(&validity{until: latest, due: l.renewAt})
	l.keeper.set.Put(&l.item, earlier(l.renewAt, latest))
}

// End is called by the backend when it learns that the lease is gone. It reports whether the lease was held until now.
func (l *Lease) End() bool {
	l.mu.Lock()
	if l.state.Load() >= finished {
		l.mu.Unlock()
		return false
	}
	if v := *l.now.Load(); v.failed == nil && l.state.Load() == kept && distributed.Over(time.Now(), v.until) {
		v.failed = l.unrenewed(v.due)
		l.now.Store(&v)
	}
	l.state.Store(lost) // rule K3
	w, as, ended := l.watcher, l.as, l.lost
	l.keeper.set.Remove(&l.item)
	l.mu.Unlock()
	l.outer.WasLost()
	if ended != nil {
		close(ended)
	}
	if w != nil {
		w.LeaseLost(as)
	}
	return true
}

// Finish is called by the backend when a release begins: nothing is renewed or reported any more. It returns false if
// the lease is lost, also if only the clocks say so (rule K2). Repeated calls give the same answer.
func (l *Lease) Finish() bool {
	if l.state.Load() < finished && distributed.Over(time.Now(), l.Until()) {
		l.End()
	}
	return l.Stop()
}

// Stop is Finish without a look at the clocks, for a release whose answer says whether the lease was still held.
func (l *Lease) Stop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() < finished {
		l.state.Store(finished)
		l.keeper.set.Remove(&l.item)
	}
	return l.state.Load() == finished
}

// Released notifies the Watcher how a release ended that StartRelease began.
func (l *Lease) Released(err error) {
	l.mu.Lock()
	w, as := l.watcher, l.as
	l.mu.Unlock()
	if w != nil {
		w.LeaseReleased(as, err)
	}
}

// due is called by the keeper when the lease's renewal or end is due. It reports whether to renew the lease now. It alone decides that:
// Postpone, RenewBy and answers only set the time. Either clock can end the lease (rule K2).
func (l *Lease) due(now time.Time) bool {
	l.mu.Lock()
	if l.state.Load() >= finished {
		l.mu.Unlock()
		return false
	}
	until := l.Until()
	if distributed.Over(now, until) {
		l.mu.Unlock()
		l.End()
		return false
	}
	defer l.mu.Unlock()
	if l.keeper.closed.Load() {
		l.state.Store(abandoned)
	}
	next, planned := until, l.state.Load() == kept && l.asked.IsZero()
	renew := planned && !now.Before(l.renewAt)
	switch {
	case renew:
		l.asked = now
	case planned:
		next = earlier(l.renewAt, until)
	}
	l.keeper.set.Put(&l.item, next)
	return renew
}

// unasked takes back a renewal that due has started; its time stays.
func (l *Lease) unasked(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.Equal(asked) {
		l.asked = time.Time{}
	}
}

// Postpone is called by the backend in place of a renewal that is not to be made yet: it is asked again soon, and nothing
// has failed.
func (l *Lease) Postpone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() {
		return
	}
	l.asked = time.Time{}
	l.renewAt = time.Now().Add(retryInterval(l.ttl))
	at := *l.now.Load()
	at.due = l.renewAt // or the lease would count as late meanwhile
	l.now.Store(&at)
	l.keeper.set.Put(&l.item, earlier(l.renewAt, at.until))
}

// RenewBy moves the next renewal forward to the given time, for its answer tells more than that the lease goes on. It does
// nothing if one is under way or comes earlier, or if the lease is not renewed any more.
func (l *Lease) RenewBy(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Before(l.renewAt) {
		l.renewAt = at
		l.keeper.set.Put(&l.item, earlier(at, l.Until()))
	}
}

// Failed is called by the backend when the renewal under way has failed. err Is ErrUnavailable, and says why: the Watcher gets it, and
// LostError returns it. The renewal is tried again until the lease expires.
func (l *Lease) Failed(err error) {
	l.mu.Lock()
	asked := l.asked
	l.mu.Unlock()
	l.failed(asked, err)
}

// failed plans another try when the renewal sent at asked has failed, since unknown is not lost (rule K1). err nil: there was no answer.
func (l *Lease) failed(asked time.Time, err error) {
	l.mu.Lock()
	if asked.IsZero() || l.state.Load() >= finished || !l.asked.Equal(asked) {
		l.mu.Unlock()
		return // answered, or ended; after an answer the next one may be under way before the rest of this batch is back
	}
	if err == nil {
		err = l.silence()
	}
	at, now := *l.now.Load(), time.Now()
	at.failed = &distributed.LostError{At: now, Err: err}
	l.now.Store(&at)
	l.asked = time.Time{}
	l.renewAt = now.Add(retryInterval(l.ttl))
	l.keeper.set.Put(&l.item, earlier(l.renewAt, at.until))
	w, as := l.watcher, l.as
	l.mu.Unlock()
	if w != nil {
		w.LeaseRenewed(as, asked, err)
	}
}

// Why a renewal has failed of which no backend could say more.
var (
	errSilent  = distributed.Unavailable("", keyless.Errorf("no answer"))
	errNotSent = keyless.Errorf("it was not sent in time: this process was paused, or too busy")
)

// unrenewed says why a lease expires of which no renewal has failed, and the next is, or was, due then. The caller holds mu.
func (l *Lease) unrenewed(due time.Time) *distributed.LostError {
	switch {
	case !l.asked.IsZero():
		return &distributed.LostError{At: l.asked, Err: l.silence()}
	case time.Since(due) <= retryInterval(l.ttl): // it was postponed, as whatever else keeps it alive was silent
		return &distributed.LostError{At: due, Err: l.silence()}
	}
	return &distributed.LostError{At: due, Err: errNotSent}
}

// silence says why a renewal was not answered. The caller holds mu.
func (l *Lease) silence() error {
	return cmp.Or(l.outer.Fault(), errSilent)
}

// LostError implements distributed.Lease.
func (l *Lease) LostError() *distributed.LostError { return l.now.Load().failed }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
