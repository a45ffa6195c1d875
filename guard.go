package wllock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Func is what is guarded. Its context has the lock (HeldFrom) and ends when the lock is lost.
type Func = func(ctx context.Context) error

// Do runs fn while it has the lock system:name:key. It waits for the lock until ctx ends, or as the options say.
//
// When the lock was not had, fn is not run, and the error, an *Error, says why. When the lock was held until fn ended,
// fn's error is returned unchanged; when it was lost before, ErrLeaseLost, in an *Error, joined with fn's error.
// A panic or runtime.Goexit in fn releases the lock and goes on.
//
// A Do inside fn, of the same Locker, name and key and with a context that descends from fn's, runs through. Goroutines
// that fn starts are not excluded from each other.
func (l *Locker) Do(ctx context.Context, name, key string, fn Func, opts ...CallOption) error {
	e, err := l.enter(ctx, name, key, opts)
	if err != nil {
		if e.fallback != nil {
			return e.fallback(ctx, err)
		}
		return err
	}
	return e.run(fn)
}

// Guard returns fn guarded by the lock: a call of it is a Do.
func (l *Locker) Guard(name, key string, fn Func, opts ...CallOption) Func {
	return func(ctx context.Context) error { return l.Do(ctx, name, key, fn, opts...) }
}

// Call is Do with a result. When the lock was not had, the result is R's zero value.
func Call[R any](ctx context.Context, l *Locker, name, key string,
	fn func(context.Context) (R, error), opts ...CallOption) (R, error) {
	var r R
	err := l.Do(ctx, name, key, func(ctx context.Context) (err error) {
		r, err = fn(ctx)
		return err
	}, opts...)
	return r, err
}

// Wrap decorates a function of one argument, from which key makes the key: each call of what it returns is a Call.
func Wrap[A, R any](l *Locker, name string, key func(A) string, fn func(context.Context, A) (R, error),
	opts ...CallOption) func(context.Context, A) (R, error) {
	return func(ctx context.Context, a A) (R, error) {
		return Call(ctx, l, name, key(a), func(ctx context.Context) (R, error) { return fn(ctx, a) }, opts...)
	}
}

// WrapOr is Wrap that answers with otherwise when the lock was not had. otherwise gets the caller's context and the
// reason, and holds nothing; it takes the place of a WithFallback.
func WrapOr[A, R any](l *Locker, name string, key func(A) string, fn func(context.Context, A) (R, error),
	otherwise func(context.Context, A, error) (R, error), opts ...CallOption) func(context.Context, A) (R, error) {
	return func(ctx context.Context, a A) (R, error) {
		var r R
		fallback := WithFallback(func(ctx context.Context, reason error) (err error) {
			r, err = otherwise(ctx, a, reason)
			return err
		})
		err := l.Do(ctx, name, key(a), func(ctx context.Context) (err error) {
			r, err = fn(ctx, a)
			return err
		}, append(opts[:len(opts):len(opts)], fallback)...)
		return r, err
	}
}

// entered is what a caller that is in has: a hold of its own, or a pin of the one it is nested in. Of one that was
// refused, only fallback is set.
type entered struct {
	hold     *hold
	ctx      context.Context // for the function
	sync     bool
	fallback func(ctx context.Context, err error) error
}

// run runs fn and then lets go of the lock, however fn ends.
func (e entered) run(fn Func) (err error) {
	defer func() {
		if reason := e.leave(); reason != nil {
			err = errors.Join(reason, err)
		}
	}()
	return fn(e.ctx)
}

// leave ends the stay and returns an error if the lock was lost. That a release had no answer has been logged; it is no
// failure of fn's.
func (e entered) leave() error {
	h := e.hold
	var kept bool
	if e.sync {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.parent), h.locker.settings.leaseTTL)
		defer cancel()
		kept, _ = h.unpinAndWait(ctx)
	} else {
		kept = h.unpin()
	}
	if kept {
		return nil
	}
	return h.lossError()
}

// lossError says that the lock was lost while fn ran.
func (h *hold) lossError() error {
	reason := ErrLeaseLost
	if h.overstaid.Load() {
		reason = errors.Join(ErrLeaseLost, ErrLockTimeMax)
	}
	return &Error{Op: "hold", Key: h.key, Tier: TierDistributed, Waited: h.localWait + h.distributedWait(),
		LocalWait: h.localWait, DistributedWait: h.distributedWait(), Ran: true, Err: reason}
}

// enter is the way in: options, key, nested guard, local queue, backend.
func (l *Locker) enter(ctx context.Context, name, key string, opts []CallOption) (entered, error) {
	n, err := l.name(name)
	if err != nil {
		return entered{fallback: l.settings.defaults.with(opts).fallback}, l.invalid(name, key, err)
	}
	c := n.options.with(opts)
	e := entered{sync: c.sync, fallback: c.fallback}
	if c.err != nil {
		return e, c.err
	}
	if err := checkKey(key); err != nil {
		return e, l.invalid(name, key, err)
	}
	full := n.prefix + key
	if within, err := l.within(ctx, full, &c); within.hold != nil || err != nil {
		within.sync, within.fallback = e.sync, e.fallback
		return within, err
	}
	h := &hold{locker: l, name: n, key: full, mode: c.mode}
	h.self.hold = h
	ctx = l.watch.begin(ctx, h)
	h.parent = ctx
	e.hold, e.ctx = h, h
	return e, l.acquire(ctx, h, &c)
}

func (l *Locker) invalid(name, key string, err error) error {
	return &Error{Op: "acquire", Key: l.system + ":" + name + ":" + key, Tier: TierLocal, Err: err}
}

// within lets a guard run through that is nested in its own open hold. Neither hold nor error: it is not.
func (l *Locker) within(ctx context.Context, key string, c *callOptions) (entered, error) {
	for at := linkOf(ctx); at != nil; at = linkOf(at.outer()) {
		h := at.held()
		if h.locker != l || h.key != key || !h.pin() {
			continue
		}
		var reason error
		switch {
		case h.lost():
			reason = h.err()
		case h.mode == distributed.Shared && c.mode == distributed.Exclusive:
			reason = ErrUpgrade
		}
		if reason != nil {
			h.unpin()
			return entered{}, &Error{Op: "acquire", Key: key, Tier: TierLocal, Err: reason}
		}
		if linkOf(ctx).held() != h {
			ctx = &nested{Context: ctx, hold: h}
		}
		return entered{hold: h, ctx: ctx}, nil
	}
	return entered{}, nil
}

// acquire takes h through both tiers. One budget covers them both.
func (l *Locker) acquire(ctx context.Context, h *hold, c *callOptions) error {
	asked := time.Now()
	turn := local.Ask{Shared: c.mode == distributed.Shared, NoWait: c.noWait, Limit: l.threshold(h.name, c), Waiting: &h.name.waiting}
	if c.wait > 0 {
		turn.Deadline = asked.Add(c.wait)
	}
	if c.hopeless && !c.noWait {
		turn.MaxAhead = h.name.hopeful(ctx, asked, turn.Deadline)
	}
	err := l.queue.Enter(ctx, &h.turn, h.key, turn)
	h.turnAt = asked
	if h.turn.Queued() {
		h.turnAt = time.Now()
		h.localWait = h.turnAt.Sub(asked)
	}
	if err != nil {
		return l.refused(ctx, h, TierLocal, ahead(turn, err), err)
	}
	h.tenure, h.use.Owner = h.turn.Baton(), h
	h.pins.Store(1)
	tier, err := h.begin(ctx, turn, tenure.Ask{Mode: c.mode, NoWait: c.noWait, Deadline: turn.Deadline, Now: h.turnAt, Tag: h.name})
	if err != nil {
		return l.refused(ctx, h, tier, turn.Limit, err)
	}
	l.admitted(h, c)
	l.watch.acquired(ctx, h)
	return nil
}

// begin gets the holder of the turn a lease. A shared caller that came too late for a running one waits until the turn
// is its own. After an error the turn has been passed on; tier tells where it was.
func (h *hold) begin(ctx context.Context, turn local.Ask, ask tenure.Ask) (Tier, error) {
	for {
		err := h.beginOnce(ctx, ask)
		if err == nil {
			return "", nil
		}
		if err != tenure.ErrDrain {
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

// beginOnce passes the turn on if the tenure does not let us in, and if the backend panics: its key must not be lost
// with it. After ErrDrain the turn is still had.
func (h *hold) beginOnce(ctx context.Context, ask tenure.Ask) error {
	pass := true
	defer func() {
		if pass {
			h.locker.pass(&h.turn, h.tenure)
		}
	}()
	err := h.tenure.Begin(ctx, &h.use, ask)
	pass = err != nil && err != tenure.ErrDrain
	return err
}

// admitted is the last step in: nothing can go wrong any more, but for the lease.
func (l *Locker) admitted(h *hold, c *callOptions) {
	if c.mode == distributed.Shared {
		h.turn.Share()
	}
	if c.lockTimeMax > 0 {
		h.limit.Owner = h
		l.limits.Put(&h.limit, h.use.Began().Add(c.lockTimeMax))
	}
	h.name.held.Add(1)
	h.name.acquired.Add(1)
	if h.use.Handoff() {
		h.name.handoffs.Add(1)
	}
}

// ahead is how many others are to have their turn before one that was refused may try again.
func ahead(ask local.Ask, err error) int {
	if err == local.ErrHopeless {
		return ask.MaxAhead
	}
	return ask.Limit
}

// refused makes the error of a caller that did not get in, and counts it.
func (l *Locker) refused(ctx context.Context, h *hold, tier Tier, ahead int, err error) error {
	if h.mode == distributed.Exclusive && (h.turn.Queued() || tier == TierDistributed) {
		h.name.pace.took(time.Since(h.turnAt)) // one who leaves the line holds those behind up for no time at all
	}
	e := &Error{Op: "acquire", Key: h.key, Tier: tier, LocalWait: h.localWait, Err: public(ctx, err)}
	if tier == TierDistributed {
		e.DistributedWait = time.Since(h.turnAt)
	}
	e.Waited = e.LocalWait + e.DistributedWait
	switch {
	case errors.Is(e.Err, ErrQueueFull):
		h.name.shed.Add(1)
		e.RetryAfter = h.name.retryAfter(ahead)
	case errors.Is(e.Err, ErrUnavailable): // before those of a time that was over meanwhile
		h.name.unavailable.Add(1)
		e.RetryAfter = l.settings.leaseTTL / 3
		if r := (*outage.Refused)(nil); errors.As(err, &r) {
			e.RetryAfter = r.RetryAfter
		}
	case errors.Is(e.Err, ErrWaitTimeout):
		h.name.timeouts.Add(1)
		e.RetryAfter = h.name.retryAfter(0)
	case errors.Is(e.Err, ErrHeld):
		e.RetryAfter = h.name.retryAfter(0)
	}
	l.watch.refused(ctx, h, e)
	return e
}
