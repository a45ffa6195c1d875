package tenure

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
)

// Errors of Begin, besides those of the backend and of the caller's context.
var (
	// ErrTimeout: the caller's deadline has passed.
	ErrTimeout = keyless.Errorf("wait at the backend timed out")
	// ErrClosed: the group has been closed.
	ErrClosed = keyless.Errorf("tenures are closed")
	// ErrDrain: the lease that fellow sharers work under takes no more of them. Wait until they have left, then Begin again.
	ErrDrain = keyless.Errorf("shared lease takes no further callers")
	// ErrCalled: a fellow has passed its lane to the caller while it waited at the backend. Its place there stays.
	ErrCalled = keyless.Errorf("a lease of this instance has become free")
	// ErrFull: as many instances wait at the backend as Ask.Most allows. The backend's error is wrapped beside it, and names the holder.
	ErrFull = keyless.Errorf("as many instances wait as allowed")
	// ErrBehind is Owner.Alone's: the caller is to ask anew, behind the permits of its instance.
	ErrBehind = keyless.Errorf("permits of this instance wait at the backend")
	// ErrDegraded: there is only a lease without the backend, and the caller asks for one of its own.
	ErrDegraded = keyless.Errorf("%w: callers are admitted without a lease (LocalOnly), which is of no use to this call", distributed.ErrUnavailable)
)

// Tenure is one key's lease and its users. Begin and Release need the turn of the key. The other methods may be called by any
// goroutine. A shared turn has several holders: one of them at a time goes to the backend, and the lease changes only while
// none of them works under it. No method calls out, and none waits, while mu is held.
type Tenure struct {
	group    *Group
	key      string
	lane     int    // of permits; 0: of the key's exclusive and shared callers
	instance string // as the backend knows it: each lane is one
	linger   deadline.Item[*Tenure]

	mu       sync.Mutex       // guards all below
	mode     distributed.Mode // of current or place, of which there is at most one
	limit    int32            // the same for Ask.Limit
	tag      any              // of the callers: see Ask
	current  current
	users    users
	outgoing outgoing
	place    distributed.Place // in the backend's queue (rule T3)
	asked    time.Duration     // Ask.TTL of place
	leaving  int               // what leaves a place, or shares a lease, and has no pin of the key yet
	parting  parting
	entering bool // somebody is at the backend, or on the way in from there with a fresh lease
	lingered bool // a lease has lingered once
	again    bool // current was asked for, not by a permit, while the lease before it was being released
	full     full
}

// current is the lease that callers work under or that lingers, and how it has been used.
type current struct {
	lease     distributed.Lease // nil: none
	began     time.Time         // when the first caller was let in; zero: none was yet
	handoffs  int
	fenceless bool      // the backend has no fences
	draining  bool      // admits nobody further: somebody has overstayed under it, or the backend disowns it
	refused   bool      // it did not serve somebody, who waits for its users to leave
	lingering bool      // unused, and the key is pinned for it
	lingers   time.Time // until when, if it is
}

// full is the latest ErrFull (rule T13).
type full struct {
	at  time.Time // when it was answered; zero: there was none
	err error
}

// outgoing is a lease whose release the backend has not answered yet.
type outgoing struct {
	prev      distributed.Lease // nil: none
	releasing bool              // its release is under way; else somebody has still to start it
	pinned    bool              // the key is pinned for it
	named     bool              // by an Enter, which may have released it before a release that was asked for as well
	gone      chan struct{}     // closed when there is no prev any more; nil: nobody waits for that
}

// parting are the places being left that the backend has not answered for.
type parting struct {
	count int
	none  chan struct{} // closed when there are none; nil: nobody waits for that
}

// Ask says what lease a caller asks for.
type Ask struct {
	Mode     distributed.Mode
	NoWait   bool
	Limit    int32     // of a permit, 0 if none
	Deadline time.Time // zero: none
	Now      time.Time // zero, or read since the caller has the turn
	Most     int       // how many instances may wait before this one. 0: any number. One that has the lock, or a place, is not refused
	Came     time.Time // when the caller asked for the lock
	Early    bool      // permits of this instance may be held: let the caller in after Owner.Alone (rule P6)
	Tag      any       // what Failed and Renewed get, the same for all callers of a key

	// TTL is that of a lease of the caller's own: one of the backend, new, which serves no other caller (rule N1). 0: any
	// lease, of the group's TTL.
	TTL time.Duration
	// Least is how long the lock stays taken, counted from Use.Began (rule N2). It takes a TTL whose claim window is longer.
	Least time.Duration

	// Adopt gets the caller, whose key no other caller uses, a lease that was detached. nil: the caller asks for one.
	Adopt func(ctx context.Context) (distributed.Lease, error)

	outage Outage // of the group; nil: none
}

// Begin lets the holder of the turn in: under the current lease if that may be handed on, else under a new one. After an error
// the caller still has the turn and passes it on. A place in the backend's queue stays for the next.
func (t *Tenure) Begin(ctx context.Context, u *Use, ask Ask) error {
	ask.outage = t.group.config.Outage
	if ask.Now.IsZero() {
		ask.Now = time.Now()
	}
	for ; ; ask.Now = time.Now() {
		if err := t.refuse(ctx, ask); err != nil {
			return err
		}
		if ask.Early {
			t.giveBack()
			if err := u.Owner.Follow(ctx, ask.Deadline); err != nil {
				return err
			}
		}
		d, err := t.look(u, &ask)
		t.unpin(d.unpin)
		switch {
		case err != nil || d.admitted:
			return err
		case d.early:
			if err = t.alone(ctx, u.Owner, ask); err == ErrBehind {
				t.drain()
				err = nil
			} else {
				ask.Early = false
			}
		case d.refill != nil:
			err = t.refill(ctx, ask, d.refill)
		default:
			err = t.fresh(ctx, u, ask, d)
		}
		if err != nil || u.lease != nil {
			return err
		} // else the lease got fences, or was lost before we were in: look again
	}
}

// refuse returns why the caller need not begin at all.
func (t *Tenure) refuse(ctx context.Context, ask Ask) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !ask.Deadline.IsZero() && !ask.Now.Before(ask.Deadline):
		return ErrTimeout
	case t.group.closed():
		return ErrClosed
	}
	return nil
}

// decision is the result of look: admitted, or what the caller needs in order to get a lease.
type decision struct {
	admitted bool
	unpin    bool              // the lease was lingering
	early    bool              // the lease would serve, when the permits of this instance are gone
	refill   distributed.Lease // would serve, but has no fence left
	prev     distributed.Lease
	place    distributed.Place // of the mode asked for
}

// look lets the caller in under the current lease, if that serves it; if it only lacks a fence, it is returned. A lease
// that does not serve becomes prev; a place of the other mode is left. All this is one decision under mu, since a fellow
// sharer may come in at any moment and must not find its lease released under it. A caller that would go to the backend
// while another one is there waits in line instead.
func (t *Tenure) look(u *Use, ask *Ask) (decision, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tag = ask.Tag
	switch {
	case t.servesAsk(ask) && ask.Early:
		return decision{early: true}, nil
	case t.servesAsk(ask):
		if !t.handOn(u, ask) {
			return decision{refill: t.current.lease}, nil
		}
		return decision{admitted: true, unpin: t.reuse()}, nil
	case t.users.count > 0 || t.entering: // rule T1
		t.current.refused = t.users.count > 0
		return decision{}, ErrDrain
	case ask.Most > 0 && t.current.lease == nil && t.outgoing.prev == nil && t.place == nil && ask.Came.Before(t.full.at): // rule T13
		return decision{}, t.full.err
	}
	t.entering = true
	t.again = t.outgoing.prev != nil && ask.Limit == 0
	t.makePrev()
	t.outgoing.named = t.outgoing.prev != nil
	if t.mode != ask.Mode || t.limit != ask.Limit || t.asked != ask.TTL {
		t.leavePlace()
	}
	return decision{prev: t.outgoing.prev, place: t.place}, nil
}

// servesAsk reports whether there is a lease that may serve a caller, except for a fence. The caller holds mu.
func (t *Tenure) servesAsk(ask *Ask) bool {
	return t.current.lease != nil && ask.TTL == 0 && ask.Limit >= t.limit && t.serves(ask.Mode, ask.Now) // rules T2 and P2
}

// handOn lets the caller in under the current lease, unless that has no fence left. The caller holds mu.
func (t *Tenure) handOn(u *Use, ask *Ask) bool {
	fence, ok := t.current.lease.NextFence() // rule T4
	if !ok && !t.current.fenceless {
		return false
	}
	t.current.handoffs++
	t.admit(u, ask.Mode, fence, ask.Now)
	u.handoff = true
	if t.mode != ask.Mode && t.current.lease.Contended() {
		t.share()
	}
	return true
}

// serves decides a hand-off (rule T2): whether the lease may serve one more caller. The receiver asks, so a caller that
// was stopped between the hand-off and its start finds out. The caller holds mu.
func (t *Tenure) serves(mode distributed.Mode, now time.Time) bool {
	c, cur := &t.group.config, &t.current
	left, healthy := cur.lease.At(now)
	switch {
	case !healthy || left < c.TTL/3 || cur.draining || t.group.closed(): // closed: Abandon must not miss a user
		return false
	case t.mode == distributed.Shared && mode == distributed.Exclusive:
		return false
	case cur.lease.Contended():
		return cur.handoffs < c.MaxHandoffs && (cur.began.IsZero() || now.Sub(cur.began) < c.MaxTenure)
	case t.users.count > 0: // joins fellow sharers, which asks nothing of the backend in any case
		return true
	}
	return c.MaxHandoffs > 0
}

// refill fetches fences for the current lease. After an error it stays current; the next caller tries again, or Release
// returns it.
func (t *Tenure) refill(ctx context.Context, ask Ask, lease distributed.Lease) error {
	err := ask.refill(ctx, lease)
	none, disowned := errors.Is(err, errors.ErrUnsupported), errors.Is(err, distributed.ErrLeaseLost)
	if !none && !disowned {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current.lease == lease { // else its loss has been noticed before
		t.current.fenceless = t.current.fenceless || none
		t.current.draining = t.current.draining || disowned
	}
	return nil
}

// fresh gets a new lease, which is current from then on, and lets the caller in under it. Nobody else goes to the backend
// meanwhile.
func (t *Tenure) fresh(ctx context.Context, u *Use, ask Ask, d decision) error {
	defer func() {
		if u.lease == nil { // also after a panic of the backend's
			t.entered() // only now: a fellow sharer may make the unused lease prev, and would wait for its Watcher
		}
	}()
	got, err := t.enter(ctx, u.Owner, ask, d)
	if err != nil {
		return err
	}
	if ask.Limit > 0 {
		u.Owner.Awaited()
	}
	lease := t.group.adopt(got)
	var fence uint64
	if ask.Early {
		err = t.alone(ctx, u.Owner, ask)
	}
	if err == nil {
		fence, err = ask.fence(ctx, lease)
	}
	now := time.Now() // after the wait, and after fetching fences may have taken a round trip (rule K2)
	fenceless := fence == 0 && err == nil
	if ask.TTL > 0 && err == nil {
		now, err = t.own(ctx, ask, lease)
	}
	left, healthy := lease.At(now)
	useless := !healthy && degraded(lease) // its outage is over, or not old enough: others may have the lock (rule O4)
	t.mu.Lock()
	t.mode, t.limit, t.place = ask.Mode, ask.Limit, nil
	t.current = current{lease: lease, fenceless: fenceless, draining: ask.TTL > 0}
	if errors.Is(err, distributed.ErrLeaseLost) || err == ErrBehind || err == nil && useless {
		t.current.draining, err = true, nil
	} else if err == nil && left > 0 && !t.group.closed() {
		t.admit(u, ask.Mode, fence, now)
		u.least = ask.Least
		t.entering = false
	}
	t.mu.Unlock()
	lease.Watch(t, lease) // reports at once what has happened before; therefore after current is set
	return err
}

// entered lets others go to the backend again.
func (t *Tenure) entered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entering = false
}

// admit lets u work under the current lease. The caller holds mu.
func (t *Tenure) admit(u *Use, mode distributed.Mode, fence uint64, now time.Time) {
	u.lease, u.fence, u.began = t.current.lease, fence, now
	t.users.mode = mode
	t.users.add(u)
	if t.current.began.IsZero() {
		t.current.began = now
	}
}

// End takes the caller out (rule T6). in is false if LeaseLost had done so before: then the turn has gone, too. kept
// reports whether the lease was held to this moment, now.
func (t *Tenure) End(u *Use, now time.Time) (in, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !u.attached {
		return false, false
	}
	t.users.remove(u)
	if u.staying && now.Before(u.Stays()) {
		t.current.lease = nil // Close does not wait: the lease has been abandoned, and expires by itself (rule N3)
	}
	if t.users.count > 0 && t.users.overstayed == t.users.count {
		t.current.lease.Abandon() // u was the last for whom it was renewed
	}
	left, _ := u.lease.At(now)
	return true, left > 0
}

// Lead notes that the caller works for a batch of size callers. Its riders count as hand-offs, as they would have had turns of
// their own. A batch is not cut to the budget left, because then every few batches one would be tiny.
func (t *Tenure) Lead(u *Use, size int) { // rule B5
	t.mu.Lock()
	defer t.mu.Unlock()
	if !u.attached {
		return
	}
	u.batch = uint32(min(uint64(size), math.MaxUint32)) // which no int of 32 bits holds
	t.current.handoffs += size - 1
}

// Overstay notes that the caller has been in for too long: the lease is not renewed for its sake, and admits no further caller
// (rule T6).
func (t *Tenure) Overstay(u *Use) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !u.attached || u.overstayed {
		return
	}
	u.overstayed, t.current.draining = true, true
	t.users.overstayed++
	if t.users.overstayed == t.users.count {
		t.current.lease.Abandon()
	}
}

// Abandon ends the renewal of the lease for all of its users, and calls f for each of them (rule T8).
func (t *Tenure) Abandon(f func(Owner)) {
	t.mu.Lock()
	var owners []Owner
	for u := t.users.first; u != nil; u = u.after {
		owners = append(owners, u.Owner)
	}
	if t.current.lease != nil {
		t.current.draining = true
		t.current.lease.Abandon()
	}
	t.mu.Unlock()
	for _, o := range owners {
		f(o)
	}
}

// LeaseLost implements distributed.Watcher: all users of the lease are notified (rule T6). The race with End has one
// winner, for each user, under mu.
func (t *Tenure) LeaseLost(l distributed.Lease) {
	t.mu.Lock()
	unpin := t.outgoing.drop(l)
	var owners []Owner
	if t.current.lease == l {
		t.current.lease = nil
		for t.users.first != nil {
			owners = append(owners, t.users.first.Owner)
			t.users.remove(t.users.first)
		}
		unpin = t.reuse()
	}
	t.mu.Unlock()
	for _, o := range owners {
		o.LeaseLost()
	}
	t.unpin(unpin)
}

// fence takes the next fence of the lease, and fetches more if none is left; 0 if the backend has none (rule T4).
func (a Ask) fence(ctx context.Context, lease distributed.Lease) (uint64, error) {
	for {
		if fence, ok := lease.NextFence(); ok {
			return fence, nil
		}
		err := a.refill(ctx, lease)
		if errors.Is(err, errors.ErrUnsupported) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// refill is Refill within the caller's time.
func (a Ask) refill(ctx context.Context, lease distributed.Lease) error {
	ctx, cancel := a.within(ctx)
	defer cancel()
	if a.outage != nil {
		return a.timeout(ctx, a.outage.Ask(ctx, lease.Refill))
	}
	return a.timeout(ctx, lease.Refill(ctx))
}
