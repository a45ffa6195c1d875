package outage

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// LocalOnly lets callers in without a lease while the backend is away.
//
//	              first failure known                   longest T old
//	answering ─────────────────────────▶ outage: callers wait ────▶ served without a lease
//	    ▲                                   │                       │
//	    └──────────── any answer ───────────┴───────────────────────┘
//
// After the longest T of the system every lease of others has expired, by whatever clock (rule O4). It counts from when
// the first failure became known, not from when its question was sent, because others may have renewed their leases in
// between.
type LocalOnly struct {
	policy // its mu guards all below, and is never held while calling out
	ttl    time.Duration

	refusals atomic.Int32 // Enters in a row that got no answer from a backend that answers others
	now      *stretch     // nil: there is no outage
	local    bool         // callers are let in without a lease
}

// maxRefusals is how often a backend may answer other questions and yet leave Enter without an answer, before its errors
// are passed on: it is reachable, and does not work.
const maxRefusals = 3

// partialPause is the pause before an Enter is repeated that has failed at a backend that answers others.
const partialPause = 100 * time.Millisecond

// stretch is what an outage is to callers.
type stretch struct {
	*outage
	begins time.Time              // when callers are let in, if nothing is answered until then
	ended  chan distributed.Lease // never delivers; closed when service begins, or the outage ends: Enter again
	timer  *time.Timer            // of service
	enter  bool                   // an Enter has failed in it
}

// NewLocalOnly returns the policy for LocalOnly.
func NewLocalOnly(c Config) *LocalOnly {
	l := &LocalOnly{ttl: c.TTL}
	l.init(c, l, learnEvery)
	if l.ttls.registry != nil {
		l.startNoting(0) // it may need to know before its first caller comes
	}
	return l
}

// Stop ends what runs in the background and waits for it. The backend stays open.
func (l *LocalOnly) Stop() {
	l.stop(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.timer.Stop() // if it fires now, serve finds that l is stopped
	}
}

// Degraded reports that callers are let in without a lease now.
func (l *LocalOnly) Degraded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.local
}

// Suspect is nil while callers are let in without a lease.
func (l *LocalOnly) Suspect() error {
	if l.Degraded() {
		return nil
	}
	return l.policy.Suspect()
}

// Enter implements distributed.Backend.
func (l *LocalOnly) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return l.EnterAt(ctx, time.Now(), req)
}

// EnterAt implements tenure.Outage. While the backend is away it is not asked: the caller gets a place, which is lost as soon
// as it should enter again, or in time a degraded lease. With NoWait, a caller that cannot be served now gets ErrUnavailable,
// not ErrHeld: no holder is known.
func (l *LocalOnly) EnterAt(ctx context.Context, now time.Time, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	prev, _ := distributed.As[*lease](req.Prev)
	req.Prev = prev.known()
	if o := l.judge.current.Load(); o != nil && o.isAway() {
		if lease, place, err := l.unasked(ctx, req, nil); lease != nil || place != nil || err != nil {
			return prev.releaseAfter(lease, place, err)
		} // else it has just come back
	}
	prev.finish()
	lease, place, away, err := l.enter(ctx, now, &req)
	switch {
	case err == nil, errors.Is(err, distributed.ErrHeld):
		if l.refusals.Load() != 0 {
			l.refusals.Store(0)
		}
	case away, l.failed(ctx, err):
		return prev.releaseAfter(l.unasked(ctx, req, l.causeOf(err)))
	}
	return lease, place, err
}

// failed reports that an Enter has failed for want of an answer, and is to be repeated. A backend that goes on answering
// others is not away; in the end its errors are passed on.
func (l *LocalOnly) failed(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !errors.Is(err, distributed.ErrUnavailable) || errors.Is(err, distributed.ErrRefused) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.enter = true
	} else {
		l.refusals.Add(1)
	}
	return l.refusals.Load() < maxRefusals
}

// Ask implements tenure.Outage. The lease's own Refill sees to outages.
func (l *LocalOnly) Ask(ctx context.Context, question func(context.Context) error) error {
	return question(ctx)
}

// unasked answers an Enter without asking the backend; failed is why, if it was asked before. All nil: it is not away.
func (l *LocalOnly) unasked(ctx context.Context, req distributed.Request, failed error) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	if o := l.judge.current.Load(); o != nil {
		l.judge.renew(o, now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.now
	switch {
	case s != nil && l.local:
		return l.degradedLease(s.outage), nil, nil
	case req.NoWait && failed != nil && s == nil:
		return nil, nil, failed
	case s == nil && failed == nil:
		return nil, nil, nil
	case s == nil: // it answers, others at least
		return nil, pausing(), nil
	case req.NoWait:
		l.report.refused.Add(1)
		return nil, nil, &Refused{RetryAfter: max(s.begins.Sub(now), retryAfter), Cause: s.cause()}
	}
	return nil, wait{s.ended}, nil
}

// wait is a place in no queue. All callers that wait in an outage share its channel, so it costs nothing.
type wait struct{ ended <-chan distributed.Lease }

// pausing is a place that is lost soon: enter again.
func pausing() wait {
	ended := make(chan distributed.Lease)
	time.AfterFunc(partialPause, func() { close(ended) })
	return wait{ended}
}

func (w wait) Granted() <-chan distributed.Lease { return w.ended }
func (w wait) Leave(context.Context) error       { return nil }
func (w wait) Holder() string                    { return "" }

// suspected implements listener.
func (l *LocalOnly) suspected(o *outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &stretch{outage: o, begins: o.began.Add(l.ttls.longest()), ended: make(chan distributed.Lease)}
	s.timer = time.AfterFunc(time.Until(s.begins), func() { l.serve(s) })
	l.now = s
}

// away implements listener.
func (l *LocalOnly) away(o *outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.now
	if s == nil || s.outage != o {
		return
	}
	l.refusals.Store(0) // these were none
	if !time.Now().Before(s.begins) {
		s.timer.Reset(0)
	}
	tells := l.report.begins()
	l.background(func() { l.report.follow(l.ctx, o, tells, "callers wait, and will be admitted without leases") })
}

// serve is called when an outage is old enough (rule O4).
func (l *LocalOnly) serve(s *stretch) {
	now := time.Now()
	l.judge.renew(s.outage, now)
	l.mu.Lock()
	if l.stopped || l.now != s || !s.isAway() || l.local {
		l.mu.Unlock()
		return
	}
	l.local = true
	close(s.ended)
	close(l.canceled)
	l.mu.Unlock()
	if !l.report.tells() {
		return
	}
	l.report.log(slog.LevelWarn, "backend is away: locks are local to this process", slog.Duration("away", now.Sub(s.first)))
}

// ended implements listener.
func (l *LocalOnly) ended(o *outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.now
	if s == nil || s.outage != o {
		return
	}
	s.timer.Stop()
	l.now = nil
	if s.enter && o.follows == nil {
		l.refusals.Add(1) // an answer to Enter takes it back
	}
	if l.local {
		l.local, l.canceled = false, make(chan struct{})
	} else {
		close(s.ended)
	}
}

// serves reports that callers are let in without a lease in o, and that o goes on.
func (l *LocalOnly) serves(o *outage, now time.Time) bool {
	l.mu.Lock()
	local := l.now != nil && l.now.outage == o && l.local
	l.mu.Unlock()
	return local && l.judge.goesOn(o, now)
}

// knownBefore returns the outage that is known to go on and was known before a lease ended that lasted until then; nil if
// there is none. A process that was stopped meanwhile has no such knowledge (rule O5): what it learns after the end of its
// lease is too late, and what it learnt before is too old.
func (l *LocalOnly) knownBefore(until, now time.Time) *outage {
	o := l.judge.current.Load()
	if o == nil || distributed.Over(o.began, until) || !l.judge.goesOn(o, now) {
		return nil
	}
	return o
}
