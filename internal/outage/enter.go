package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Enter implements distributed.Backend. While the backend is away it does not ask: the caller gets a place that is lost
// when there is something new, so that it enters again, or in time a lease that is none. With NoWait, who cannot be
// served now gets ErrUnavailable, not ErrHeld: nobody is known to have the lock.
func (l *LocalOnly) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	prev, _ := distributed.As[*lease](req.Prev)
	req.Prev = prev.unwrapped()
	if l.away.Load() != nil {
		if lease, place, err := l.unasked(ctx, req, nil); lease != nil || place != nil || err != nil {
			return prev.instead(lease, place, err)
		} // else it is back this moment
	}
	prev.settle()
	sent := time.Now()
	lease, place, err := l.within(ctx, req)
	switch judge(ctx, err) {
	case nil:
		prev.givenUp()
		l.answered()
		if l.refused.Load() != 0 {
			l.refused.Store(0)
		}
	case errAway:
		l.enterFailed(sent)
		if l.refused.Load() < maxRefused {
			return prev.instead(l.unasked(ctx, req, err))
		}
	case errUnknown:
		if ctx.Err() != nil {
			l.doubtIt() // who never waits as long as it takes the backend to fail would never learn of an outage
		}
	}
	return lease, place, err
}

// within is an Enter that has to be answered within patience.
func (l *LocalOnly) within(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	short, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	lease, place, err := l.Backend.Enter(short, req)
	return lease, place, l.tooLong(ctx, short, err)
}

// tooLong makes ErrUnavailable of the error of a call that was broken off because its patience, not the caller's, was over.
func (l *LocalOnly) tooLong(ctx, short context.Context, err error) error {
	if err == nil || errors.Is(err, distributed.ErrUnavailable) || ctx.Err() != nil || short.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: no answer within %v: %w", distributed.ErrUnavailable, l.patience, err)
}

// unasked answers an Enter without asking the backend; failed is why, if it was asked before. All nil: it is not away.
func (l *LocalOnly) unasked(ctx context.Context, req distributed.Request, failed error) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.away.Load()
	if s != nil && l.broken(s, now) {
		l.finish(s)
		l.begin(now)
		s = l.away.Load()
	}
	switch {
	case s != nil && s.local:
		return l.degraded(s), nil, nil
	case req.NoWait && failed != nil:
		return nil, nil, failed
	case s == nil && failed == nil:
		return nil, nil, nil
	case s == nil: // it was away, and has answered since
		return nil, again, nil
	case req.NoWait:
		return nil, nil, &Refused{RetryAfter: max(s.began.Add(l.ttl).Sub(now), l.pause)}
	}
	return nil, wait{s.over}, nil
}

// wait is a place in no queue. All that wait in a stretch share its channel, so none costs anything.
type wait struct{ over <-chan distributed.Lease }

// again is a place that is lost already: enter again.
var again = func() wait {
	over := make(chan distributed.Lease)
	close(over)
	return wait{over}
}()

func (w wait) Granted() <-chan distributed.Lease { return w.over }
func (w wait) Leave(context.Context) error       { return nil }
