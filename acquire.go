package wllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// entered is what a caller inside has: a hold of its own, or a pin of the one it is nested in. If the caller was refused,
// only fallback is set.
type entered struct {
	hold        *hold.Hold
	ctx         context.Context // for the function
	releaseWait time.Duration   // how long to wait for the answer to the release; 0: not at all
	fallback    fallback
	job         *Locker // whose backend notes how the function ends; nil: it is no job
	onError     bool    // ReleaseOnError
}

// run runs fn and then releases the lock, however fn ends. It returns the function's error, with what was wrong with the hold.
func (e entered) run(fn func(context.Context) error) (err error) {
	returned := false
	defer func() {
		e.ran(err, returned)
		err = left(e.hold, e.hold.Leave(e.releaseWait), err)
	}()
	err = fn(e.ctx)
	returned = true
	return err
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
	e.releaseWait = l.releaseWait(&r)
	if h, nested, err := l.within(ctx, &r); h != nil || err != nil {
		e.hold, e.ctx = h, nested
		return e, err
	}
	e.hold = new(own).hold()
	e.hold.Init(l.holds, ctx, &r.name.Name, r.key, r.options.mode)
	asked := time.Now()
	if err := l.acquire(e.hold.Trace(ctx), e.hold, &r, asked, r.options.deadline(asked)); err != nil {
		return e, err
	}
	if d := r.options.lockTimeMax; d > 0 {
		e.hold.LimitBy(e.hold.Began().Add(d))
	}
	e.ctx = e.hold.Inside()
	if r.options.leads || r.options.least > 0 {
		e.job, e.onError = l, r.options.onError
	}
	return e, nil
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

func (l *Locker) invalid(name, key string, err error) error {
	return &Error{Op: "acquire", Key: l.observer.Redaction.Name(l.names.system + ":" + name + ":" + key), Tier: TierLocal, Err: err}
}

// Mistakes in the program, refused before any queue. See mistake.
var (
	errNilContext = errors.New("wllock: context is nil")
	errNilFunc    = errors.New("wllock: function is nil")
)

// errLent: a goroutine may outlive its request with such a context, and would join the lock of the next request.
var errLent = errors.New("this context carries no lock, because its web framework reuses it for other requests: pass on the context of the request, such as c.Request.Context()")

// mistake is an error with the lock that it was made with.
func (l *Locker) mistake(err error, name, key string) error {
	if key != "" {
		name += ":" + l.observer.Redaction.Key(key)
	}
	return fmt.Errorf("%w (%s)", err, nametext.Quote(name))
}

// releaseWait is how long a caller waits for the answer to its release.
func (l *Locker) releaseWait(r *request) time.Duration {
	if r.options.sync {
		return l.settings.leaseTTL
	}
	return 0
}

// within makes locks reentrant: it pins the open hold of the same key that the caller is nested in, and returns it with
// the context for the function. Neither hold nor error: there is none.
func (l *Locker) within(ctx context.Context, r *request) (*hold.Hold, context.Context, error) { // rule L6
	innermost := hold.Innermost(ctx)
	for at := innermost; at != nil; at = hold.Around(at) {
		h := at.Hold()
		if h.Group() != l.holds || h.Key() != r.key || !h.Pin() {
			continue
		}
		var reason error
		switch {
		case hold.IsLent(at):
			reason = errLent
		case h.Lost():
			reason = h.Fault()
		case h.Mode() == distributed.Shared && (r.options.mode == distributed.Exclusive || r.options.permits > 0 && h.Permits() == 0):
			reason = ErrUpgrade // rules L6 and P5
		case r.options.least > h.Least():
			reason = errStaysLess
		case r.options.leads && !h.Insist():
			reason = errLeadDegraded // rule N1
		}
		if reason != nil {
			h.Leave(0)
			return nil, nil, &Error{Op: "acquire", Key: l.observer.Redaction.Name(r.key), Tier: TierLocal, Err: reason}
		}
		if innermost.Hold() != h {
			ctx = hold.Nested(ctx, h)
		}
		return h, ctx, nil
	}
	return nil, nil, nil
}

// acquire takes h through both tiers. One deadline, if there is one, covers them both (rule L7).
func (l *Locker) acquire(ctx context.Context, h *hold.Hold, r *request, asked, deadline time.Time) error {
	c := &r.options
	turn := local.Ask{
		Shared: c.mode == distributed.Shared, Permits: c.permits, NoWait: c.noWait, Limit: r.name.threshold(c),
		Deadline: deadline, Waiting: &r.name.Waiting,
	}
	if c.hopeless && !c.noWait {
		turn.MaxAhead = r.name.MaxAhead(ctx, asked, turn.Deadline)
	}
	switch err := h.Queue(ctx, l.queue, h.Key(), turn, asked); {
	case err == local.ErrRides:
		return err
	case err != nil:
		return l.refused(ctx, h, r.name, false, ahead(turn, err), err)
	}
	ask := l.leaseFor(c, tenure.Ask{Mode: c.mode, Limit: c.permits, NoWait: c.noWait, Deadline: turn.Deadline, Most: c.fleet, Came: asked})
	if atBackend, err := h.Begin(ctx, turn, ask); err != nil {
		return l.refused(ctx, h, r.name, atBackend, c.fleet, err)
	}
	return nil
}

// ahead is how many others are to get their turn before it is worth trying again after a refusal.
func ahead(ask local.Ask, err error) int {
	if err == local.ErrHopeless {
		return ask.MaxAhead
	}
	return ask.Limit
}

// refused makes the error of a caller that did not get the lock.
func (l *Locker) refused(ctx context.Context, h *hold.Hold, n *nameState, atBackend bool, ahead int, err error) error {
	holder, err := holderIn(err)
	e := &Error{Op: "acquire", Key: h.Shown(), Tier: TierLocal, LocalWait: h.LocalWait(), Err: l.public(ctx, err)}
	if atBackend {
		e.Tier, e.DistributedWait = TierDistributed, time.Since(h.TurnAt())
	}
	e.Waited = e.LocalWait + e.DistributedWait
	why := outcomeOf(e.Err)
	if why != report.QueueFull { // that is no fault of the backend
		e.Err = l.blame(e.Err)
		why = outcomeOf(e.Err)
	}
	switch why {
	case report.QueueFull:
		e.RetryAfter = n.RetryAfter(ahead)
		if e.Holder = holder; holder == "" {
			e.Holder = l.holderOf(h.Key())
		}
	case report.TimedOut, report.Busy, report.PastDeadline:
		e.RetryAfter = n.RetryAfter(0)
		if e.Holder = holder; !atBackend {
			e.Holder = l.holderOf(h.Key())
		}
	case report.Unavailable:
		e.RetryAfter = l.settings.leaseTTL / 3
		if r := (*outage.Refused)(nil); errors.As(err, &r) {
			e.RetryAfter = r.RetryAfter
		}
	}
	h.Refused(why, atBackend, e.DistributedWait, e)
	return e
}

// blame adds ErrUnavailable to the error of a caller that ran out of time, or would not wait, while the backend does not
// answer: those that wait behind a head that cannot reach the backend have met no contention (rule O6).
func (l *Locker) blame(err error) error {
	if errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrHeld) {
		return err
	}
	if why := l.policy.Suspect(); why != nil {
		return fmt.Errorf("%w: %w", err, l.observer.Redaction.Error(why))
	}
	return err
}
