package wllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// entered is what a caller inside has: a hold of its own, or a pin of the one it is nested in. If the caller was refused,
// only fallback is set.
type entered struct {
	hold        *hold
	ctx         context.Context // for the function
	releaseWait time.Duration   // how long to wait for the answer to the release; 0: not at all
	fallback    func(ctx context.Context, err error) error
}

// run runs fn and then releases the lock, however fn ends.
func (e entered) run(fn func(context.Context) error) (err error) {
	defer func() { err = e.leave(err) }()
	return fn(e.ctx)
}

// leave ends the stay. It returns the function's error, with what was wrong with the hold (rule T7).
func (e entered) leave(err error) error {
	if !e.release() {
		return e.hold.explain(err, e.hold.lossReasons())
	}
	if err != nil && e.hold.overstayed.Load() && e.hold.stopped(err) {
		return e.hold.explain(err, []error{ErrLockTimeMax})
	}
	return err
}

// release reports whether the lock was held to the end.
func (e entered) release() (kept bool) {
	if e.releaseWait > 0 {
		return e.hold.unpinWithin(e.releaseWait)
	}
	return e.hold.unpin()
}

// enter is the way in: options, key, nested guard, local queue, backend, and the limit of the stay.
func (l *Locker) enter(ctx context.Context, name, key string, opts []CallOption) (entered, error) {
	if ctx == nil {
		return entered{}, l.mistake(errNilContext, name, key)
	}
	var r request
	err := l.request(&r, name, key, opts)
	e := entered{fallback: r.options.fallback}
	if err != nil {
		return e, err
	}
	if r.options.sync {
		e.releaseWait = l.settings.leaseTTL
	}
	if h, nested, err := within(ctx, l.observer, &r); h != nil || err != nil {
		e.hold, e.ctx = h, nested
		return e, err
	}
	h := new(hold)
	h.init(l, &r)
	h.parent = ctx
	e.hold = h
	asked := time.Now()
	if err := l.acquire(h.began(ctx), h, &r.options, asked, r.options.deadline(asked)); err != nil {
		return e, err
	}
	if d := r.options.lockTimeMax; d > 0 {
		h.limitBy(h.use.Began().Add(d))
	}
	e.ctx = h.inside(h, &h.foreign)
	return e, nil
}

// limitBy sets when a hold overstays that has just begun.
func (h *hold) limitBy(at time.Time) {
	h.limitTo(at)
	if h.use.Least() > 0 && !at.After(h.use.Stays()) {
		h.use.Lease().Abandon() // it lasts for as long without a renewal, and frees the lock in time if this process dies (rule N2)
	}
}

// request is a lock that is asked for.
type request struct {
	name    *nameState
	key     string // full name
	options callOptions
}

// request checks what a caller asks for, and fills in r, which is large. After an error, only the fallback of r counts.
func (l *Locker) request(r *request, name, key string, opts []CallOption) error {
	n, err := l.names.get(name)
	if err != nil {
		r.options = l.settings.defaults.with(opts)
		return l.invalid(name, key, err)
	}
	r.name, r.options = n, n.options
	if len(opts) > 0 {
		r.options = r.options.with(opts)
	}
	if r.options.err != nil {
		return fmt.Errorf("wllock: %w", r.options.err)
	}
	if err := checkKey(key); err != nil {
		return l.invalid(name, key, err)
	}
	r.key = n.prefix + key
	if err := r.options.conflict(); err != nil {
		return err
	}
	if r.options.permits > 0 {
		r.options.mode = distributed.Shared
	}
	return nil
}

// init makes h a hold of l's for what is asked.
func (h *hold) init(l *Locker, r *request) {
	h.observer, h.limits = l.observer, l.limits
	h.self.hold = h
	h.name, h.key, h.mode = r.name, r.key, r.options.mode
}

func (l *Locker) invalid(name, key string, err error) error {
	return &Error{Op: "acquire", Key: l.observer.Redaction.Name(l.names.system + ":" + name + ":" + key), Tier: TierLocal, Err: err}
}

// within makes locks reentrant: it pins the open hold of the same key that the caller is nested in, and returns it with
// the context for the function. Neither hold nor error: there is none.
func within(ctx context.Context, of *report.Observer, r *request) (*hold, context.Context, error) { // rule L6
	for at := linkOf(ctx); at != nil; at = linkOf(at.outer()) {
		h := at.held()
		if h.observer != of || h.key != r.key || !h.pin() {
			continue
		}
		var reason error
		switch {
		case h.lost():
			reason = h.err()
		case h.mode == distributed.Shared && (r.options.mode == distributed.Exclusive || r.options.permits > 0 && h.turn.Permits() == 0):
			reason = ErrUpgrade // rules L6 and P5
		case r.options.least > h.use.Least():
			reason = errStaysLess
		case r.options.leads && !h.tenure.Insist(&h.use):
			reason = errLeadDegraded // rule N1
		}
		if reason != nil {
			h.unpin()
			return nil, nil, &Error{Op: "acquire", Key: of.Redaction.Name(r.key), Tier: TierLocal, Err: reason}
		}
		if linkOf(ctx).held() != h {
			ctx = &nested{Context: ctx, hold: h}
		}
		return h, ctx, nil
	}
	return nil, nil, nil
}

// acquire takes h through both tiers. One deadline, if there is one, covers them both (rule L7).
func (l *Locker) acquire(ctx context.Context, h *hold, c *callOptions, asked, deadline time.Time) error {
	turn := local.Ask{Shared: c.mode == distributed.Shared, Permits: c.permits, NoWait: c.noWait, Limit: h.name.threshold(c), Deadline: deadline, Waiting: &h.name.Waiting}
	if c.hopeless && !c.noWait {
		turn.MaxAhead = h.name.MaxAhead(ctx, asked, turn.Deadline)
	}
	err := l.queue.Enter(ctx, &h.turn, h.key, turn)
	h.turnAt = asked
	if h.turn.Queued() {
		h.turnAt = time.Now()
		h.localWait = h.turnAt.Sub(asked)
	}
	switch {
	case err == local.ErrRides:
		return err
	case err != nil:
		return l.refused(ctx, h, TierLocal, ahead(turn, err), err)
	}
	h.tenure, h.use.Owner = h.turn.Baton(), h
	h.pins.Store(1)
	ask := l.leaseFor(c, tenure.Ask{Mode: c.mode, Limit: c.permits, NoWait: c.noWait, Early: h.turn.Early(), Deadline: turn.Deadline,
		Now: h.turnAt, Tag: &h.name.Name})
	tier, err := h.begin(ctx, turn, ask)
	if err != nil {
		return l.refused(ctx, h, tier, turn.Limit, err)
	}
	if c.mode == distributed.Shared && turn.Permits == 0 {
		h.turn.Share()
	}
	h.gotIt()
	return nil
}

// begin gets a lease for the holder of the turn. A shared caller that came too late for a running lease waits until it
// has the turn alone. After an error the turn has been passed on; tier is where it happened.
func (h *hold) begin(ctx context.Context, turn local.Ask, ask tenure.Ask) (Tier, error) {
	for {
		err := h.beginOnce(ctx, ask)
		switch {
		case err == nil:
			return "", nil
		case err == tenure.ErrCalled && h.join(ask):
			return "", nil
		case err == tenure.ErrCalled:
			ask.Now = time.Time{}
			continue
		case err != tenure.ErrDrain:
			return TierDistributed, err
		}
		err = h.turn.Again(ctx, turn)
		now := time.Now()
		h.localWait, h.turnAt, ask.Now = h.localWait+now.Sub(h.turnAt), now, now
		if err != nil {
			return TierLocal, err
		}
	}
}

// beginOnce passes the turn on if the tenure refuses the caller, and if the backend panics: its key must not be lost with
// it. After ErrDrain and ErrCalled the caller still has the turn, after ErrCalled a second one as well.
func (h *hold) beginOnce(ctx context.Context, ask tenure.Ask) error {
	pass := true
	defer func() {
		if !pass {
			return
		}
		if ask.Limit > 0 {
			h.passCalled()
		}
		h.pass()
	}()
	h.flight.Context = ctx
	err := h.tenure.Begin(&h.flight, &h.use, ask)
	if err == nil && ask.Limit > 0 && h.use.Handoff() {
		h.turn.Arrived()
	}
	if pass = err != nil && err != tenure.ErrDrain && err != tenure.ErrCalled; pass {
		err = heldBy(h.tenure, err) // before its place is left
	}
	return err
}

// ahead is how many others are to get their turn before it is worth trying again after a refusal.
func ahead(ask local.Ask, err error) int {
	if err == local.ErrHopeless {
		return ask.MaxAhead
	}
	return ask.Limit
}

// refused makes the error of a caller that did not get the lock.
func (l *Locker) refused(ctx context.Context, h *hold, tier Tier, ahead int, err error) error {
	holder, err := holderIn(err)
	e := &Error{Op: "acquire", Key: h.shown(), Tier: tier, LocalWait: h.localWait, Err: public(ctx, err)}
	if tier == TierDistributed {
		e.DistributedWait = time.Since(h.turnAt)
	}
	e.Waited = e.LocalWait + e.DistributedWait
	why := outcomeOf(e.Err)
	if why != report.QueueFull { // that comes of this process alone
		e.Err = l.blame(e.Err)
		why = outcomeOf(e.Err)
	}
	e.Err = l.observer.Redaction.Error(e.Err, h.key)
	switch why {
	case report.QueueFull:
		e.RetryAfter, e.Holder = h.name.RetryAfter(ahead), l.holderOf(h.key)
	case report.TimedOut, report.Busy, report.PastDeadline:
		e.RetryAfter = h.name.RetryAfter(0)
		if e.Holder = holder; tier == TierLocal {
			e.Holder = l.holderOf(h.key)
		}
	case report.Unavailable:
		e.RetryAfter = l.settings.leaseTTL / 3
		if r := (*outage.Refused)(nil); errors.As(err, &r) {
			e.RetryAfter = r.RetryAfter
		}
	}
	h.refused(why, tier == TierDistributed, e.DistributedWait)
	return e
}

// blame adds ErrUnavailable to the error of a caller that ran out of time, or would not wait, while the backend does not
// answer: those that wait behind a head that cannot reach the backend have met no contention (rule O6).
func (l *Locker) blame(err error) error {
	if errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrHeld) {
		return err
	}
	if why := l.policy.Suspect(); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}
