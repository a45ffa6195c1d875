package tenure

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// enter asks the backend for a lease and waits for it. The caller has the turn; no lease serves it.
func (t *Tenure) enter(ctx context.Context, of Owner, ask Ask, d decision) (distributed.Lease, error) {
	if ask.Adopt != nil {
		return ask.adopt(ctx)
	}
	place, prev := d.place, d.prev
	for {
		if place == nil {
			lease, p, err := t.ask(ctx, ask, prev)
			if ask.NoWait && t.byOurselves(err) {
				lease, p, err = t.askOn(ctx, ask)
			}
			if ask.NoWait && t.group.asksAfter(err, t.key) {
				return t.askAfter(ctx, ask, err)
			}
			if ask.Most > 0 && !ask.NoWait && errors.Is(err, distributed.ErrHeld) {
				err = t.refusedFull(err)
			}
			if err != nil || lease != nil {
				return lease, err
			}
			place, prev = p, nil
			t.setPlace(place, &ask)
		}
		lease, err := t.await(ctx, of, place, ask)
		if err != nil || lease != nil {
			return lease, err // after an error the place stays for the next caller (rule T3)
		}
		t.setPlace(nil, &ask)
		place, ask.Now = nil, time.Now() // lost: enter again
	}
}

// adopt gets a lease that was detached.
func (a Ask) adopt(ctx context.Context) (lease distributed.Lease, err error) {
	ctx, cancel := a.within(ctx)
	defer cancel()
	adopt := func(ctx context.Context) (err error) {
		lease, err = a.Adopt(ctx)
		return err
	}
	if a.outage != nil {
		err = a.outage.Ask(ctx, adopt)
	} else {
		err = adopt(ctx)
	}
	return lease, a.timeout(ctx, err)
}

func (t *Tenure) setPlace(p distributed.Place, ask *Ask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.place, t.mode, t.limit, t.asked = p, ask.Mode, ask.Limit, ask.TTL
}

// ask makes one Enter. It names prev, if there is one (rule T5), and releases it itself when the outcome is not known.
func (t *Tenure) ask(ctx context.Context, ask Ask, prev distributed.Lease) (lease distributed.Lease, place distributed.Place, err error) {
	ctx, cancel := ask.within(ctx)
	defer cancel()
	c := &t.group.config
	if ask.NoWait && t.settle(ctx) {
		ask.Now = time.Now()
	}
	req := distributed.Request{Key: t.key, Instance: t.instance, Mode: ask.Mode, Limit: int(ask.Limit), TTL: cmp.Or(ask.TTL, c.TTL), NoWait: ask.NoWait, Prev: prev}
	if prev == nil {
		req.QueueMost = ask.Most
	}
	if c.Outage != nil {
		lease, place, err = c.Outage.EnterAt(ctx, ask.Now, req)
	} else {
		lease, place, err = c.Backend.Enter(ctx, req)
	}
	if err != nil && ctx.Err() != nil {
		t.group.gaveUp(t.key)
	}
	if prev != nil {
		if err == nil || errors.Is(err, distributed.ErrHeld) {
			t.LeaseReleased(prev, nil)
		} else {
			t.releasePrev()
		}
	}
	return lease, place, ask.timeout(ctx, err)
}

// refusedFull notes that the queue at the backend is full, and returns the error for all callers that came before that was known: one question
// answers for all of them (rule T13). Those that come later ask again.
func (t *Tenure) refusedFull(why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = full{time.Now(), keyless.Errorf("%w: %w", ErrFull, why)}
	return t.full.err
}

// within returns ctx with the caller's deadline.
func (a Ask) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.Deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, a.Deadline, ErrTimeout)
}

// timeout makes ErrTimeout of the error of a request that the deadline in ctx ended, and keeps both if the backend could
// not be reached.
func (a Ask) timeout(ctx context.Context, err error) error {
	switch {
	case err == nil || context.Cause(ctx) != ErrTimeout:
		return err
	case errors.Is(err, distributed.ErrUnavailable):
		return unanswered{err}
	}
	return ErrTimeout
}

// unanswered Is ErrTimeout as well as what it wraps.
type unanswered struct{ error }

func (u unanswered) Is(target error) bool { return target == ErrTimeout }
func (u unanswered) Unwrap() error        { return u.error }

// await waits for the grant of a place. Neither lease nor error: the place is lost, or of no use. When the grant arrives as
// the caller's time ends, either may win: a grant that is not taken here lies in the place, for the next caller or Leave.
func (t *Tenure) await(ctx context.Context, of Owner, place distributed.Place, ask Ask) (distributed.Lease, error) {
	if ask.NoWait { // the place is inherited: has the grant come?
		select {
		case lease := <-place.Granted():
			return lease, nil
		default:
			return nil, distributed.ErrHeld
		}
	}
	var timeout <-chan time.Time
	if !ask.Deadline.IsZero() {
		timer := time.NewTimer(time.Until(ask.Deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	var canceled <-chan struct{}
	if o := t.group.config.Outage; o != nil {
		canceled = o.Await()
		defer o.Awaited()
	}
	var called <-chan struct{}
	if ask.Limit > 0 {
		called = of.Await(ask.TTL > 0)
	}
	select {
	case lease := <-place.Granted():
		return lease, nil
	case <-called:
		return nil, ErrCalled
	case <-canceled: // a grant of the same moment is released with the place (rules T3 and O6)
		t.mu.Lock()
		t.leavePlace()
		t.mu.Unlock()
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout:
		return nil, ErrTimeout
	case <-t.group.closing:
		return nil, ErrClosed
	}
}
