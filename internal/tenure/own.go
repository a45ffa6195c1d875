package tenure

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// poll is how often a caller looks whether its lease has been renewed, when its answer was so long on its way that it
// has to wait for that: seldom needed, and no longer than a round trip over a slow network.
const poll = 5 * time.Millisecond

// own makes sure that a fresh lease is one of the backend, and outlasts ask.Least without a renewal (rules N1 and N2). It
// returns the moment from which that counts.
//
// A lease lasts from before its answer was sent, so the window that its TTL was chosen for may be too little after a slow
// answer, or a grant that was found by a heartbeat. Then it is renewed at once, which makes twice the window of it.
func (t *Tenure) own(ctx context.Context, ask Ask, lease distributed.Lease) (start time.Time, err error) {
	if !insist(lease) {
		return time.Now(), ErrDegraded
	}
	var first time.Time
	for {
		now := time.Now()
		left, _ := lease.At(now)
		until := lease.Until()
		switch {
		case left >= ask.Least || left <= 0: // lost: the caller finds out
			return now, nil
		case first.IsZero():
			first = until
			lease.RenewBy(now)
		case until.After(first):
			return now, keyless.Errorf("%w: %w: it grants leases of %v, and the lock is to stay taken for %v", distributed.ErrUnavailable,
				distributed.ErrRefused, left.Round(time.Millisecond), ask.Least)
		}
		if err := t.pause(ctx, ask, poll); err != nil {
			return now, err
		}
	}
}

// pause waits for d, within the caller's time.
func (t *Tenure) pause(ctx context.Context, ask Ask, d time.Duration) error {
	ctx, cancel := ask.within(ctx)
	defer cancel()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ask.timeout(ctx, ctx.Err())
	case <-t.group.closing:
		return ErrClosed
	}
}

// Insist makes the lease that the caller works under one that is never degraded, for a Lead inside its hold. The lease then
// serves no further caller, which might rather be degraded than lose it. It reports false if the lease is degraded already.
func (t *Tenure) Insist(u *Use) bool { // rule N1
	if !insist(u.lease) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.attached { // else the lease is lost, or another one is current by now
		t.current.draining = true
	}
	return true
}

// Stay is for a caller that has returned. It reports true if the lock stays taken until u.Stays, or the lease is lost, or
// Close: the caller calls End then, unless it gets LeaseLost. The lease is not renewed for that, so that it ends soon after if
// this process dies (rule N2).
func (t *Tenure) Stay(u *Use, now time.Time) bool {
	if u.least == 0 || !now.Before(u.Stays()) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	left, _ := u.lease.At(now)
	if !u.attached || left <= 0 { // lost before; End tells
		return false
	}
	u.staying = true
	u.lease.Abandon()
	return true
}

// Staying reports that Stay has been called and reported true.
func (t *Tenure) Staying(u *Use) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return u.staying
}

// Stayers calls f for the caller that has returned and whose lock stays taken, if there is one.
func (t *Tenure) Stayers(f func(Owner)) {
	t.mu.Lock()
	u := t.users.first // a lease of its own has one user
	if u == nil || !u.staying {
		t.mu.Unlock()
		return
	}
	owner := u.Owner
	t.mu.Unlock()
	f(owner)
}

// Closed reports that Close has been called.
func (t *Tenure) Closed() bool { return t.group.closed() }
