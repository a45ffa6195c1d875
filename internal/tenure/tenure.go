package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// Errors of Begin, besides those of the backend and of the caller's context.
var (
	// ErrTimeout: the caller's deadline has passed.
	ErrTimeout = errors.New("wait at the backend timed out")
	// ErrClosed: the group has been closed.
	ErrClosed = errors.New("tenures are closed")
	// ErrDrain: the lease that fellow sharers work under takes no more of them. Wait until they have left, then Begin again.
	ErrDrain = errors.New("shared lease takes no further callers")
)

// Tenure is one key's lease and who uses it. Begin and GiveUp need the turn of the key; the other methods may be called
// by anybody. A shared turn has several holders: of these, one at a time goes to the backend, and the lease changes only
// while none of them works under it. No method calls out, and none waits, while mu is held.
type Tenure struct {
	group  *Group
	key    string
	linger deadline.Item[*Tenure]

	mu         sync.Mutex // guards all below
	lease      distributed.AsyncLease
	mode       distributed.Mode // of lease or place
	tag        any              // of the callers: see Ask
	began      time.Time        // when the first caller was let in under lease; zero: none was yet
	handoffs   int              // how often lease was handed on
	entering   bool             // somebody is at the backend, or on the way in from there with a fresh lease
	fenceless  bool             // lease has no fences to give
	closing    bool             // lease takes nobody further: somebody has overstayed under it, or the backend disowns it
	users      *Use             // who works under lease
	overstayed int              // how many of them have
	count      int              // how many there are
	lingering  bool             // lease is kept for nobody in particular, and the key pinned
	lingered   bool             // that has happened once
	place      distributed.Place
	leaving    int // places on their way back for which the key is not pinned yet
	prev       distributed.AsyncLease
	releasing  bool // prev is on its way back; else somebody has still to see to it
	pinned     bool // for prev
}

// Use is one caller that works under a lease. It is a field of the caller's own state; its methods are for its owner.
type Use struct {
	Owner Owner // set before Begin

	lease   distributed.AsyncLease // these four are set by Begin, then read only
	fence   uint64
	handoff bool
	began   time.Time

	// guarded by Tenure.mu
	attached      bool
	over          bool // has overstayed
	before, after *Use
}

// Owner is told when the lease it works under is lost. Its turn is then its owner's to pass on. It must not block.
type Owner interface{ LeaseLost() }

// Lease is what the caller works under.
func (u *Use) Lease() distributed.Lease { return u.lease }

// Fence is the caller's fence, 0 if the backend has none.
func (u *Use) Fence() uint64 { return u.fence }

// Handoff reports that the caller was served from a running tenure.
func (u *Use) Handoff() bool { return u.handoff }

// Began is when the caller was let in.
func (u *Use) Began() time.Time { return u.began }

// Ask says how a lease is wanted.
type Ask struct {
	Mode     distributed.Mode
	NoWait   bool
	Deadline time.Time // zero: none
	Now      time.Time // read after the turn was had, if the caller has just looked at the clock
	Tag      any       // what Failed and Renewed get; the same for all callers of a key
}

// Begin lets the holder of the turn in: under the lease at hand if it may be handed on, else under a new one. After an
// error the caller still has the turn and passes it on; a place in the backend's queue stays for the next.
func (t *Tenure) Begin(ctx context.Context, u *Use, ask Ask) error {
	now := ask.Now
	if now.IsZero() {
		now = time.Now()
	}
	for ; ; now = time.Now() {
		if err := t.over(ctx, ask, now); err != nil {
			return err
		}
		at, err := t.look(u, ask.Mode, ask.Tag, now)
		t.unpin(at.unpin)
		switch {
		case err != nil || at.in:
			return err
		case at.lease != nil:
			err = t.refill(ctx, ask, at.lease)
		default:
			err = t.fresh(ctx, u, ask, at)
		}
		if err != nil || u.lease != nil {
			return err
		} // else the lease got fences, or was lost on the way to us, as if it had never been: look again
	}
}

// refill fetches fences for the lease at hand. After an error it stays at hand; whoever is next tries again, or GiveUp
// returns it.
func (t *Tenure) refill(ctx context.Context, ask Ask, lease distributed.AsyncLease) error {
	err := ask.refill(ctx, lease)
	none, disowned := errors.Is(err, errors.ErrUnsupported), errors.Is(err, distributed.ErrLeaseLost)
	if !none && !disowned {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == lease { // else something has noticed the loss before
		t.fenceless = t.fenceless || none
		t.closing = t.closing || disowned
	}
	return nil
}

// fresh gets a new lease, which is at hand from then on, and lets the caller in under it. Nobody else goes to the backend
// meanwhile.
func (t *Tenure) fresh(ctx context.Context, u *Use, ask Ask, at hand) error {
	defer func() {
		if u.lease == nil { // also after a panic of the backend's
			t.entered() // only now: a fellow sharer may retire the lease that nobody works under, and would wait for its Watcher
		}
	}()
	got, err := t.enter(ctx, ask, at)
	if err != nil {
		return err
	}
	lease := t.group.adopt(got)
	fence, err := ask.fence(ctx, lease)
	now := time.Now() // after the wait, and after fetching fences may have taken a round trip
	left, _ := lease.At(now)
	t.mu.Lock()
	t.lease, t.mode, t.place, t.began = lease, ask.Mode, nil, time.Time{}
	t.handoffs, t.closing, t.overstayed, t.fenceless = 0, false, 0, fence == 0 && err == nil
	if errors.Is(err, distributed.ErrLeaseLost) {
		t.closing, err = true, nil
	} else if err == nil && left > 0 && !t.group.closed() {
		t.attach(u, fence, now)
		t.entering = false
	}
	t.mu.Unlock()
	lease.Watch(t, lease) // tells at once what has happened before; therefore after t.lease is set
	return err
}

// entered lets others go to the backend again.
func (t *Tenure) entered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entering = false
}

// hand is what the holder of the turn finds: a lease that lets it in, or what to go on with towards one.
type hand struct {
	in    bool
	unpin bool                   // the lease was lingering
	lease distributed.AsyncLease // would serve, but has no fence left
	prev  distributed.AsyncLease
	place distributed.Place // of the mode asked for
}

// look lets the caller in under the lease at hand, if that serves it; if it only lacks a fence, it is returned. A lease
// that does not serve becomes prev; a place of the other mode is given up. All this is one decision under mu, for a fellow
// sharer may come in at any moment, and must not find its lease given up under it. One that would go to the backend while
// somebody else does, waits in line instead.
func (t *Tenure) look(u *Use, mode distributed.Mode, tag any, now time.Time) (hand, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tag = tag
	switch {
	case t.lease != nil && t.serves(mode, now):
		fence, ok := t.lease.NextFence()
		if !ok && !t.fenceless {
			return hand{lease: t.lease}, nil
		}
		t.handoffs++
		t.attach(u, fence, now)
		u.handoff = true
		return hand{in: true, unpin: t.stopLinger()}, nil
	case t.count > 0 || t.entering:
		return hand{}, ErrDrain
	}
	t.entering = true
	t.retire()
	if t.mode != mode {
		t.part()
	}
	return hand{prev: t.prev, place: t.place}, nil
}

// serves is the rule of hand-over: whether the lease may serve one more caller. The one who is let in asks, so a caller
// that was stopped between the hand-over and its start finds out. The caller holds mu.
func (t *Tenure) serves(mode distributed.Mode, now time.Time) bool {
	c := &t.group.config
	left, healthy := t.lease.At(now)
	switch {
	case !healthy || left < c.TTL/3 || t.closing || t.group.closed(): // closed: who ends the holders must not miss one
		return false
	case t.mode == distributed.Shared && mode == distributed.Exclusive:
		return false
	case t.lease.Contended():
		return t.handoffs < c.MaxHandoffs && (t.began.IsZero() || now.Sub(t.began) < c.MaxTenure)
	case t.count > 0: // joins fellow sharers, which asks nothing of the backend in any case
		return true
	}
	return c.MaxHandoffs > 0
}

// attach puts u in. The caller holds mu.
func (t *Tenure) attach(u *Use, fence uint64, now time.Time) {
	u.lease, u.fence, u.began = t.lease, fence, now
	u.attached, u.after = true, t.users
	if t.users != nil {
		t.users.before = u
	}
	t.users = u
	t.count++
	if t.began.IsZero() {
		t.began = now
	}
}

// End takes the caller out. in is false if LeaseLost had done so before: then the turn has gone, too. kept tells
// whether the lease was held to this moment, now.
func (t *Tenure) End(u *Use, now time.Time) (in, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !u.attached {
		return false, false
	}
	t.detach(u)
	if t.count > 0 && t.overstayed == t.count {
		t.lease.Abandon() // u was the last for whom it was renewed
	}
	left, _ := u.lease.At(now)
	return true, left > 0
}

// Overstay notes that the caller has been in for too long: the lease is not renewed for its sake, and takes no others.
func (t *Tenure) Overstay(u *Use) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !u.attached || u.over {
		return
	}
	u.over, t.closing = true, true
	t.overstayed++
	if t.overstayed == t.count {
		t.lease.Abandon()
	}
}

// Abandon ends the keeping of the lease, whoever works under it, and calls f for each of these.
func (t *Tenure) Abandon(f func(Owner)) {
	t.mu.Lock()
	var owners []Owner
	for u := t.users; u != nil; u = u.after {
		owners = append(owners, u.Owner)
	}
	if t.lease != nil {
		t.closing = true
		t.lease.Abandon()
	}
	t.mu.Unlock()
	for _, o := range owners {
		f(o)
	}
}

// detach takes u out of the list of users. The caller holds mu.
func (t *Tenure) detach(u *Use) {
	if u.before == nil {
		t.users = u.after
	} else {
		u.before.after = u.after
	}
	if u.after != nil {
		u.after.before = u.before
	}
	u.attached, u.before, u.after = false, nil, nil
	t.count--
	if u.over {
		t.overstayed--
	}
}

// LeaseLost implements distributed.Watcher: all who work under the lease learn of it. Of the race with End there is one
// winner, for each caller, under mu.
func (t *Tenure) LeaseLost(l distributed.Lease) {
	t.mu.Lock()
	unpin := t.forget(l)
	var owners []Owner
	if t.lease == l {
		t.lease = nil
		for t.users != nil {
			owners = append(owners, t.users.Owner)
			t.detach(t.users)
		}
		unpin = t.stopLinger()
	}
	t.mu.Unlock()
	for _, o := range owners {
		o.LeaseLost()
	}
	t.unpin(unpin)
}

// over tells why the caller need not begin at all.
func (t *Tenure) over(ctx context.Context, ask Ask, now time.Time) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !ask.Deadline.IsZero() && !now.Before(ask.Deadline):
		return ErrTimeout
	case t.group.closed():
		return ErrClosed
	}
	return nil
}

// fence takes the next fence of the lease, fetching more if they have run out; 0 if the backend has none.
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
	return a.timeout(ctx, lease.Refill(ctx))
}
