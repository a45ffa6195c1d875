package driver

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// Attempt is one request for a lock and what became of it: see the table of states in the documentation of the package (rule C1).
type Attempt[W any] struct {
	distributed.Request               // without Prev
	Number              uint64        // larger than those of all before it
	Lane                *Lane[W]      // set by Prepare, then read only
	Lasts               time.Duration // set by Prepare, then read only: how long a renewal makes the lease last
	Window              time.Duration // set by Prepare, then read only: how long a grant lasts that is not claimed
	Fences              Block         // set with its lease, then read only: those of the grant
	Wire                W             // the Driver's

	b       *Backend[W]
	adds    bool                   // a lease to those that are kept, and may wait for them
	self    [1]*Attempt[W]         // for calls about it alone
	prev    Prev[W]                // of Enter
	granted chan distributed.Lease // of a place; holds one; sent to and closed under mu
	overdue chan struct{}          // of Settings.Apart: the caller need not wait any more; holds one
	item    deadline.Item[*Attempt[W]]

	mu      sync.Mutex // guards all below; taken before that of the lane, and never while calling out
	state   state
	quitted bool      // Ended was called
	lease   *lease[W] // nil before held
	kept    lease[W]  // that one
	holder  string
	next    time.Time // when a look without an event is due; zero: none was planned
	looking bool      // a Look is queued or under way
	events  bool      // there was one meanwhile
	told    bool      // the latest Look was answered

	heard     time.Time // the service may have carried out a request that was sent then, or before
	since     time.Time // a grant that is pushed is younger: the latest request answered with a place was sent then
	early     *Standing // a grant that was quicker than the answer to Enter
	contended bool      // a message said so, perhaps before the grant
	noticed   time.Time // when the latest came
	wanted    bool      // a message said that another instance was refused the lock, perhaps before the grant
	renewed   time.Time // when the renewal was sent that was answered last
	gone      bool      // Gone was called

	wasHeld bool          // when the release of the lease began
	watched bool          // its answer goes to the Watcher
	tried   bool          // an earlier removal may have been carried out, so that nothing to remove is no loss
	tries   int           // of a Drop
	err     error         // of over: why the release was none
	refused bool          // the latest Drop was; it goes on
	denied  bool          // why is for those who wait
	why     error         // the latest failure: of a try of Enter while that is under way, then of a Drop
	change  chan struct{} // closed when over or denied; made when somebody waits

	queued bool // to be dropped; guarded by the mutex of the lane
}

type state uint8

const (
	asking state = iota
	cutOff       // Enter is under way, and Close, the end of the session or the going of its caller was quicker
	waiting
	claiming
	held
	ending
	adopted
	dropping
	over
)

func (b *Backend[W]) newAttempt(req distributed.Request) *Attempt[W] {
	adds := req.Prev == nil && !req.NoWait
	req.Prev = nil
	now := time.Now()
	a := &Attempt[W]{Request: req, adds: adds, Number: b.NextNumber(), Lasts: req.TTL, Window: distributed.ClaimWindow(req.TTL), b: b, since: now, heard: now}
	a.self[0], a.item.Owner = a, a
	return a
}

// Orphan returns an attempt that no caller waits for, to be prepared and dropped: the service has pushed a grant to it.
func (b *Backend[W]) Orphan(number uint64, req distributed.Request) *Attempt[W] {
	a := b.newAttempt(req)
	a.Number, a.state, a.quitted = number, ending, true
	return a
}

// Discard drops an Orphan.
func (a *Attempt[W]) Discard() { a.Lane.push(a) }

// Delayed notes why the Enter under way has no answer yet, for a caller whose time ends before.
func (a *Attempt[W]) Delayed(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == asking {
		a.why = why
	}
}

// entered takes what came of Enter.
func (a *Attempt[W]) entered(s Standing, err error) (distributed.Lease, distributed.Place, error) {
	a.mu.Lock()
	a.heard, a.why = time.Now(), nil
	if err == nil && s.Kind == Queued {
		a.granted = make(chan distributed.Lease, 1)
	}
	switch {
	case err == nil && s.Kind == Refused:
		a.state = over
		a.mu.Unlock()
		a.forget()
		if a.b.set.Tells {
			return nil, nil, distributed.HeldAndTold(s.Holder)
		}
		return nil, nil, distributed.Held(s.Holder)
	case err != nil, a.state == cutOff:
		a.state, a.tried = ending, true
		if a.granted != nil {
			close(a.granted)
		}
		a.mu.Unlock()
		a.drop()
		if a.granted != nil {
			return nil, place[W]{a}, nil
		}
		return nil, nil, cmp.Or(err, ErrOver)
	case s.Kind == Granted:
		l, gone := a.start(s), a.gone
		a.mu.Unlock()
		if gone { // it was granted
			l.End()
		}
		return l, nil, nil
	}
	if a.state, a.holder = waiting, s.Holder; a.gone { // it had a place
		a.lose(a.Lane.session != nil)
		return nil, place[W]{a}, nil
	}
	defer a.mu.Unlock()
	if a.early != nil {
		if a.grant(*a.early); a.state != waiting {
			return nil, place[W]{a}, nil
		}
		s.Next = Now
	}
	a.since = s.Sent
	a.plan(s.Next)
	if a.events {
		a.queueLook()
	}
	return nil, place[W]{a}, nil
}

// grant delivers the lease to a place. With little time left, or by a Claimer, it is claimed first. The caller holds mu.
func (a *Attempt[W]) grant(s Standing) {
	if s.Sent.IsZero() {
		s.Sent = a.since
	}
	late := a.late(s)
	if late && s.Pushed {
		a.plan(Now)
		return
	}
	if a.b.claimer != nil || late {
		a.state = claiming
		a.b.Go(func() { a.claim(s) })
		return
	}
	a.granted <- a.start(s) // the one that the channel holds
}

// claim claims a grant and delivers it. One without an answer may have been claimed, so it is dropped.
func (a *Attempt[W]) claim(s Standing) {
	var err error
	s.Sent, err = a.renewNow(a.Lane.ctx, a.TTL)
	s.claimed = true
	a.mu.Lock()
	switch {
	case a.state != claiming: // left meanwhile
	case err == nil:
		a.granted <- a.start(s)
	default:
		a.lose(!errors.Is(err, distributed.ErrLeaseLost))
		return
	}
	a.mu.Unlock()
}

// start makes the lease of a grant. The caller holds mu.
func (a *Attempt[W]) start(s Standing) *lease[W] {
	a.state = held
	s.Contended, s.Wanted = s.Contended || a.contended, s.Wanted || a.wanted
	a.lease = newLease(a, s)
	if a.events && !a.looking { // one came before the answer to Enter
		a.queueLook()
	}
	return a.lease
}

// Stands takes an answer to Look, or what the service has pushed. It does nothing to an attempt that neither asks, waits nor holds.
func (a *Attempt[W]) Stands(s Standing) {
	a.mu.Lock()
	a.told = true
	l, holds := a.lease, a.state == held
	switch {
	case a.state == asking && s.Kind == Granted:
		early := s
		a.early = &early
	case a.state == waiting && s.Kind == Granted:
		a.grant(s)
	case a.state == waiting:
		if s.Sent.After(a.since) {
			a.since = s.Sent
		}
		if s.Holder != "" {
			a.holder = s.Holder
		}
		a.plan(s.Next)
	case holds:
		a.plan(s.Next)
	}
	a.mu.Unlock()
	if holds {
		a.contention(l, s.Contended, s.Sent)
	}
}

// Noticed takes a message that another instance waits for what the attempt has, or will have, or that none does any more. It is newer
// than the answer to a request that was sent before, or the next answer corrects it.
func (a *Attempt[W]) Noticed(waits bool) {
	a.mu.Lock()
	a.contended, a.noticed = waits, time.Now()
	l := a.lease
	changed := l != nil && l.Contend(waits) // under mu: messages of several servers come at once
	a.mu.Unlock()
	if changed {
		l.NotifyContended()
	}
}

// contention takes what the answer says to a request that was sent then. A message that came since is newer, or soon corrected by the next
// answer; but it hides no waiter that the answer knows of.
func (a *Attempt[W]) contention(l *lease[W], waits bool, sent time.Time) {
	a.mu.Lock()
	newer := a.noticed.After(sent)
	a.mu.Unlock()
	if waits || !newer {
		l.SetContended(waits)
	}
}

// Wanted takes a message that another instance was refused what the attempt has, or will have, and does not wait (rule T12).
func (a *Attempt[W]) Wanted() {
	a.mu.Lock()
	a.wanted = true
	l := a.lease
	a.mu.Unlock()
	if l != nil && l.Want() {
		l.NotifyContended()
	}
}

// Gone says that the service knows nothing of the attempt any more: a place is lost, and a lease ends. Before the answer to Enter it is newer
// than that.
func (a *Attempt[W]) Gone() {
	a.mu.Lock()
	a.told, a.gone = true, true
	l := a.lease
	if a.lose(a.Lane.session != nil) { // a create that may still come would last as long as the session
		return
	}
	a.mu.Unlock()
	if l != nil {
		l.End()
	}
}

// lose ends the waiting without a lease, and gives up mu, which the caller holds. It reports false, and does nothing, if the
// attempt does not wait. The service may have it if it is to be dropped.
func (a *Attempt[W]) lose(drop bool) bool {
	if !a.waits() {
		return false
	}
	a.state, a.tried = over, true
	if drop {
		a.state = ending
	}
	close(a.granted)
	a.mu.Unlock()
	if drop {
		a.drop()
	} else {
		a.forget()
	}
	return true
}

// waits reports that nothing is in the channel, and that it is not closed. The caller holds mu.
func (a *Attempt[W]) waits() bool { return a.state == waiting || a.state == claiming }

// cut ends what is not held: Close was called, or the session is over. It returns the lease, and whether nobody has read it.
func (a *Attempt[W]) cut() (l *lease[W], unread bool) {
	a.mu.Lock()
	if a.lose(true) {
		return nil, false
	}
	defer a.mu.Unlock()
	if a.state == asking {
		a.state = cutOff
	}
	return a.lease, len(a.granted) > 0
}

// sessionOver ends what depends on the session, which is over.
func (a *Attempt[W]) sessionOver() {
	if l, _ := a.cut(); l != nil {
		l.End()
	}
}

// close ends what is not held, and a lease that nobody has read.
func (a *Attempt[W]) close() {
	if _, unread := a.cut(); !unread {
		return
	}
	select { // against the receiver: the channel decides
	case l := <-a.granted:
		close(a.granted)
		if a.release(l.(*lease[W]).Stop()) {
			a.drop()
		}
	default:
	}
}

// quit has nobody look at the attempt any more, or wait for what becomes of it. The caller has changed its state.
func (a *Attempt[W]) quit() {
	a.mu.Lock()
	first, planned := !a.quitted, !a.next.IsZero()
	a.quitted = true
	a.mu.Unlock()
	if planned {
		a.b.due.Remove(&a.item)
	}
	if first {
		a.b.driver.Ended(a)
	}
}

// Overdue lets the caller of a request go that runs Apart, as the end of its ctx does: what the Driver sent goes on, though its time is over.
func (a *Attempt[W]) Overdue() {
	select {
	case a.overdue <- struct{}{}:
	default:
	}
}

// leaves cuts off a request whose caller goes, and returns why it has no answer yet. It reports false if it has one.
func (a *Attempt[W]) leaves() (why error, leaves bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == asking {
		a.state = cutOff
	}
	return a.why, a.state == cutOff
}

// forget is quit for an attempt that is over.
func (a *Attempt[W]) forget() {
	a.quit()
	a.Lane.forget(a)
}

// drop has all that is left of the attempt removed in the background. The caller has changed its state.
func (a *Attempt[W]) drop() {
	a.quit()
	a.Lane.push(a)
}

// Waiting reports that the attempt has a place. The answer may be old.
func (a *Attempt[W]) Waiting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == waiting
}

// Held reports that the attempt has a lease, which has not expired. The answer may be old.
func (a *Attempt[W]) Held() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == held && !distributed.Over(time.Now(), a.lease.Until())
}

// Unread reports that a grant lies in the channel.
func (a *Attempt[W]) Unread() bool { return len(a.granted) > 0 }

// Shares reports that the attempt asks for a shared lease, or that its exclusive one was downgraded.
func (a *Attempt[W]) Shares() bool {
	if a.Mode == distributed.Shared {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lease != nil && a.lease.fences.IsShared()
}

// place is a waiting attempt as its user sees it.
type place[W any] struct{ a *Attempt[W] }

// Granted implements distributed.Place.
func (p place[W]) Granted() <-chan distributed.Lease { return p.a.granted }

// Holder implements distributed.Place.
func (p place[W]) Holder() string {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.a.holder
}

// Leave implements distributed.Place.
func (p place[W]) Leave(ctx context.Context) error {
	a := p.a
	a.mu.Lock()
	waits := a.waits()
	if waits {
		a.state, a.tried = ending, true
	}
	leaving := a.lease == nil && (a.state == ending || a.state == dropping)
	a.mu.Unlock()
	if waits {
		a.drop()
	} else if leaving {
		a.again()
	}
	if leaving {
		return a.b.OrClosed(a.wait(ctx, "leave", a.patience()))
	}
	select { // against the receiver: the channel decides
	case l, ok := <-a.granted:
		if ok {
			if err := l.Release(ctx); !errors.Is(err, distributed.ErrLeaseLost) {
				return err
			}
		}
	default:
	}
	return nil
}
