package driver

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/parts"
)

// lease is a held attempt as its user sees it. keepalive.Lease notices its end; what is here is how long the session vouches for it, or
// renewals, its fences and its release.
type lease[W any] struct {
	keepalive.Lease
	a      *Attempt[W]
	window time.Time // until then it lasts while nobody has read it
	fences parts.Fences
}

// newLease makes the lease of a grant. It lasts for the claim window, or as long as the session if that is shorter. The claim comes when a
// third of that has passed, so that there is time for more tries (rule C4). The caller holds a.mu.
func newLease[W any](a *Attempt[W], s Standing) *lease[W] {
	l := &a.kept
	l.a = a
	a.Fences = s.Fences
	if a.Mode == distributed.Shared && a.Limit == 0 {
		l.fences.Share(s.Fences.First)
	} else {
		l.fences.Open(s.Fences.First, s.Fences.Count)
	}
	lasts := a.Window
	if s.claimed {
		lasts = a.Lasts
	}
	l.window = distributed.Validity(s.Sent, lasts)
	until, claim := l.window, s.Sent.Add(min(a.Window, a.Lasts)/3)
	if session := a.Lane.session; session != nil {
		until = earlier(until, session.Until())
	} else {
		claim = earlier(claim, until.Add(-a.b.renewer.ClaimTime(a)))
		if s.RenewIn > 0 {
			claim = earlier(claim, s.Sent.Add(s.RenewIn))
		}
	}
	l.SetContended(s.Contended)
	if s.Wanted {
		l.Want()
	}
	a.Lane.keeper.Keep(&l.Lease, l, a.Lasts, until, claim)
	a.plan(s.Next)
	return l
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// renew is called by the keeper. An unread grant is not claimed: perhaps nobody will release it (rule C4).
func (ln *Lane[W]) renew(_ context.Context, due []distributed.Lease) {
	now := time.Now()
	some := make([]*Attempt[W], 0, len(due))
	for _, d := range due {
		switch l := d.(*lease[W]); {
		case ln.session != nil:
			l.renew(now)
		case l.a.Unread():
			l.Postpone()
		default:
			some = append(some, l.a)
		}
	}
	if len(some) > 0 {
		ln.sendRenewals(ln.ctx, some)
	}
}

// renew extends the lease by what the session has proven (rule K5).
func (l *lease[W]) renew(now time.Time) {
	until := l.a.Lane.session.Until()
	if l.a.Unread() {
		until = earlier(until, l.window)
	}
	switch {
	case !l.a.Lane.session.Healthy(now): // unknown
	case until.After(l.Until()):
		l.Renewed(until)
	default:
		l.Postpone()
	}
}

// At implements distributed.Lease. A lease whose session is silent is not healthy.
func (l *lease[W]) At(now time.Time) (time.Duration, bool) {
	left, healthy := l.Lease.At(now)
	s := l.a.Lane.session
	return left, healthy && (s == nil || s.Healthy(now))
}

// Healthy implements distributed.Lease.
func (l *lease[W]) Healthy() bool {
	_, healthy := l.At(time.Now())
	return healthy
}

// Fault implements keepalive.Kept.
func (l *lease[W]) Fault() error {
	if s := l.a.Lane.session; s != nil {
		return s.Fault()
	}
	return nil
}

// NextFence implements distributed.Lease. More are fetched in the background when half are used.
func (l *lease[W]) NextFence() (uint64, bool) {
	fence, ok, low := l.fences.Draw()
	if low {
		l.a.b.Go(func() {
			ctx, cancel := context.WithTimeout(l.a.Lane.ctx, l.a.patience())
			defer cancel()
			_ = l.Refill(ctx) // its user asks again when it runs out
		})
	}
	return fence, ok
}

// Refill implements distributed.Lease.
func (l *lease[W]) Refill(ctx context.Context) error {
	if l.a.b.Closed() {
		return distributed.ErrClosed
	}
	return l.fences.Refill(ctx, func() (uint64, uint64, error) {
		b, err := l.a.b.driver.Refill(ctx, l.a)
		return b.First, b.Count, err
	})
}

// Downgrade implements distributed.Lease.
func (l *lease[W]) Downgrade(ctx context.Context) error {
	if l.a.Shares() {
		return nil
	}
	if l.a.b.Closed() {
		return distributed.ErrClosed
	}
	s, err := l.a.b.driver.Share(ctx, l.a)
	if err == nil {
		l.a.Shared(s)
	}
	return err
}

// Shared takes an answer to Share, which may come when its caller has gone: the lease is a shared one.
func (a *Attempt[W]) Shared(s Standing) {
	a.mu.Lock()
	l := a.lease
	a.mu.Unlock()
	l.fences.Share(s.Fences.First)
	a.LookIn(s.Next) // others count as waiters now
}

// release begins the release of the lease. It reports false if that was begun before.
func (a *Attempt[W]) release(wasHeld bool) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first = a.state == held; first {
		a.state, a.wasHeld = ending, wasHeld
	}
	return first
}

// Release implements distributed.Lease.
func (l *lease[W]) Release(ctx context.Context) error {
	a, wasHeld := l.a, l.Finish()
	if a.b.Closed() {
		return distributed.ErrClosed
	}
	l.fences.Close()
	if a.release(wasHeld) {
		a.quit()
		a.Lane.dropHere(ctx, a)
	} else {
		a.again()
	}
	err := a.wait(ctx, "release", a.patience())
	if err == nil {
		a.mu.Lock()
		err = a.outcome()
		a.mu.Unlock()
	}
	return a.b.OrClosed(err)
}

// StartRelease implements distributed.Lease.
func (l *lease[W]) StartRelease() bool {
	a, wasHeld := l.a, l.Stop()
	if a.b.Closed() {
		return true // it expires
	}
	l.fences.Close()
	a.mu.Lock()
	first, done, err := a.state == held, a.state == over, a.outcome()
	if first {
		a.state, a.wasHeld = ending, wasHeld
	}
	a.watched = !done
	a.mu.Unlock()
	switch {
	case first:
		a.drop()
	case done && err == nil:
		return true
	case done:
		l.Released(err)
	}
	return false
}

// WasLost implements keepalive.Kept: what a session keeps of a lease that is lost is removed.
func (l *lease[W]) WasLost() {
	a := l.a
	a.mu.Lock()
	if a.state != held {
		a.mu.Unlock()
	} else if a.Lane.session == nil { // it has expired at the service, or does so now
		a.state = over
		a.mu.Unlock()
		a.forget()
	} else {
		a.state, a.tried = ending, true
		a.mu.Unlock()
		a.drop()
	}
}

// Drawn returns the last fence that was drawn, and the last of the block, of a lease whose release has begun: the rest can go back.
func (a *Attempt[W]) Drawn() (drawn, last uint64) { return a.lease.fences.Close() }

// Prev is the lease that an Enter releases first. Nil, or an empty one, is none.
type Prev[W any] struct {
	a    *Attempt[W]
	mine bool // the Enter removes it; otherwise a Drop is under way. Only the goroutine of Enter uses it
}

// adopt returns the lease that an Enter releases first, no longer renewed (rule C3). It ignores one that is not of this Backend,
// instance and key, and one that was lost.
func (b *Backend[W]) adopt(req distributed.Request) (p Prev[W]) {
	l, ok := distributed.As[*lease[W]](req.Prev)
	if !ok || l.a.b != b || l.a.Key != req.Key || l.a.Instance != req.Instance || !l.Finish() {
		return p
	}
	l.fences.Close()
	a := l.a
	a.mu.Lock()
	switch a.state {
	case held:
		a.wasHeld = true
		fallthrough
	case ending:
		p.mine = true
	case dropping:
		p.mine = b.set.Twice
	}
	if p.mine {
		a.state = adopted
	}
	p.a = a
	a.mu.Unlock()
	a.quit()
	return p
}

// Attempt returns the attempt, whoever removes it, and whatever has become of it. nil: there is none.
func (p *Prev[W]) Attempt() *Attempt[W] {
	if p == nil {
		return nil
	}
	return p.a
}

// Adopted reports that an Enter removes the lease. A Driver that begins the removal itself when the attempt has Ended does not do so then.
func (a *Attempt[W]) Adopted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == adopted
}

// Mine returns the attempt that the Enter has to remove. nil: none, or a Drop of it is under way.
func (p *Prev[W]) Mine() *Attempt[W] {
	if p == nil || !p.mine {
		return nil
	}
	return p.a
}

// Settle notes what the request has found, if it was to remove it.
func (p *Prev[W]) Settle(found Outcome) {
	if a := p.take(); a != nil {
		a.ended(found)
	}
}

// GiveUp has it dropped in the background, after a request that has removed it or not.
func (p *Prev[W]) GiveUp() {
	if a := p.take(); a != nil {
		a.state, a.tried = dropping, true
		a.mu.Unlock()
		a.Lane.push(a)
	}
}

// settled ends the request of an attempt: the lease before it is dropped if that is not settled. The attempt forgets it, or each would keep all
// before it.
func (a *Attempt[W]) settled() {
	a.prev.GiveUp()
	a.prev = Prev[W]{}
}

// take returns the attempt, with its mutex held, if it is the Enter's to say what becomes of it.
func (p *Prev[W]) take() *Attempt[W] {
	a := p.Mine()
	if a == nil {
		return nil
	}
	p.mine = false
	a.mu.Lock()
	if a.state != adopted { // a Drop was answered first
		a.mu.Unlock()
		return nil
	}
	return a
}

// Wait waits for a Drop that is under way, so that the service has answered before the request is sent, or seen.
func (p *Prev[W]) Wait(ctx context.Context) error {
	if p == nil || p.a == nil || p.mine {
		return nil
	}
	p.a.again()
	return p.a.wait(ctx, "release", distributed.ClaimWindow(p.a.TTL))
}
