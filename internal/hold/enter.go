package hold

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Trace starts the span of the acquisition, before the caller waits, and returns the context to wait with.
func (h *Hold) Trace(ctx context.Context) (traced context.Context) {
	traced, h.spans = h.group.Observer.Began(ctx, h.name, h.key, &h.foreign)
	return traced
}

// Queue waits in the local queue for the turn of a key, which is usually the lock's.
func (h *Hold) Queue(ctx context.Context, q *local.Queue[*tenure.Tenure], key string, ask local.Ask, asked time.Time) error {
	err := q.Enter(ctx, &h.turn, key, ask)
	h.turnAt = asked
	if h.turn.Queued() {
		h.turnAt = time.Now()
		h.localWait = h.turnAt.Sub(asked)
	}
	return err
}

// Begin gets a lease for the holder of the turn. A shared caller that came too late for a running lease waits until it has the
// turn alone. After an error the turn has been passed on. atBackend: there it happened.
func (h *Hold) Begin(ctx context.Context, turn local.Ask, ask tenure.Ask) (atBackend bool, err error) {
	h.tenure, h.use.Owner = h.turn.Baton(), h
	h.pins.Store(1)
	ask.Early, ask.Now, ask.Tag = h.turn.Early(), h.turnAt, h.name
	for inside := false; !inside; {
		switch err = h.begin(ctx, ask); err {
		case nil:
			inside = true
		case tenure.ErrCalled:
			inside, ask.Now = h.join(ask), time.Time{}
		case tenure.ErrDrain:
			err = h.turn.Again(ctx, turn)
			now := time.Now()
			h.localWait, h.turnAt, ask.Now = h.localWait+now.Sub(h.turnAt), now, now
			if err != nil {
				return false, err
			}
		default:
			return true, err
		}
	}
	if turn.Shared && turn.Permits == 0 {
		h.turn.Share()
	}
	h.got()
	return false, nil
}

// Inside returns the context for the function.
func (h *Hold) Inside() context.Context { return h.inside(h, &h.foreign) }

// begin passes the turn on if the tenure refuses the caller, and if the backend panics: its key must not be lost with
// it. After ErrDrain and ErrCalled the caller still has the turn, after ErrCalled a second one as well.
func (h *Hold) begin(ctx context.Context, ask tenure.Ask) error {
	pass := true
	defer func() {
		if !pass {
			return
		}
		if ask.Limit > 0 {
			h.passReceived()
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

// Blocked is an error of the tenures with the holder that kept the caller out.
type Blocked struct {
	error
	By string
}

// Unwrap is for errors.Is and errors.As.
func (b Blocked) Unwrap() error { return b.error }

// heldBy adds the holder to the error of a caller that the lock's holder kept out, if the tenure knows it and the error does not
// say it (rule T11).
func heldBy(t *tenure.Tenure, err error) error {
	if err != tenure.ErrTimeout && err != distributed.ErrHeld && err != context.DeadlineExceeded { //nolint:errorlint // with more beside it, it is the backend that kept it out
		return err
	}
	if holder := t.Holder(); holder != "" {
		return Blocked{err, holder}
	}
	return err
}
