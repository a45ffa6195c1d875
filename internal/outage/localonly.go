package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// LocalOnly lets callers in without a lease while the backend is away.
//
//	              first failure known                     T old
//	answering ─────────────────────────▶ away: callers wait ────▶ served without a lease
//	    ▲                                   │                       │
//	    └──────────── any answer ───────────┴───────────────────────┘
//
// After one T every lease of others has expired, by whatever clock (rule O4). T counts from when the first failure became
// known, not from when its request was sent, because others may have renewed their leases in between.
//
// It needs no Breaker: after the first failure only the pinger asks the backend, until it answers.
type LocalOnly struct {
	distributed.Backend
	pinger // its mu guards all below and the outages, and is never held while calling out
	times
	logger *slog.Logger

	away    atomic.Pointer[outage] // nil: the backend answers. Written under mu
	refused atomic.Int32           // outages in a row in which Enter failed, and that another answer ended

	ended time.Time // when the last outage was ended by an answer
}

// times are all derived from T.
type times struct {
	ttl      time.Duration
	patience time.Duration // of an Enter: an answer after that is none
	pingTime time.Duration // the same of a ping
	pause    time.Duration // between two pings while the backend is away
	idle     time.Duration // the same while it is not known to be, and callers wait
	// silence is how long after one failure the next must come. While the backend is away, pings fail more often than
	// this; so a process that has noticed nothing for longer was stopped itself (rule O5).
	silence time.Duration
}

func timesOf(ttl time.Duration) times {
	t := times{ttl: ttl, patience: max(ttl/4, shortestPatience), pingTime: max(ttl/4, shortestPing)}
	t.pause = min(ttl/20, longestPause)
	t.idle = ttl / 8
	t.silence = max(ttl/2, 2*(t.pingTime+t.pause))
	return t
}

const (
	// shortestPatience is long for any network: an Enter that is broken off is repeated, which helps no slow server.
	shortestPatience = 250 * time.Millisecond
	shortestPing     = 50 * time.Millisecond
	// longestPause bounds how long after its return the backend is pinged.
	longestPause = 250 * time.Millisecond
	// maxRefused is how often a backend may answer pings and yet fail Enter, before its errors are passed on: it is
	// reachable, and refuses (its memory is full, a right is missing).
	maxRefused = 3
)

// outage is a time in which nothing was answered. A new one begins when the backend has answered in between, or may have.
type outage struct {
	began time.Time              // when the first failure became known
	ended chan distributed.Lease // never delivers; closed when service begins, or the outage ends: Enter again
	timer *time.Timer            // of service; set once, under mu
	last  time.Time              // when the last failure became known
	local bool                   // callers are let in without a lease
	enter bool                   // Enter has failed, too
}

// NewLocalOnly wraps b for leases of the given TTL. The beginning and the end of service without leases go to logger.
func NewLocalOnly(b distributed.Backend, ttl time.Duration, logger *slog.Logger) *LocalOnly {
	l := &LocalOnly{Backend: b, times: timesOf(ttl), logger: logger}
	l.init(l.nextPing, l.pingOnce)
	return l
}

// Stop ends what runs in the background and waits for it. The backend stays open.
func (l *LocalOnly) Stop() {
	l.pinger.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.away.Load(); o != nil {
		o.timer.Stop() // if it fires now, serve finds that l is stopped
	}
}

// Degraded reports that callers are let in without a lease now.
func (l *LocalOnly) Degraded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.away.Load()
	return o != nil && o.local
}

// Enter implements distributed.Backend. During an outage it does not ask the backend: the caller gets a place, which is
// lost as soon as it should enter again, or in time a degraded lease. With NoWait, a caller that cannot be served now
// gets ErrUnavailable, not ErrHeld: nobody is known to hold the lock.
func (l *LocalOnly) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	prev, _ := distributed.As[*lease](req.Prev)
	req.Prev = prev.known()
	if l.away.Load() != nil {
		if lease, place, err := l.unasked(ctx, req, nil); lease != nil || place != nil || err != nil {
			return prev.releaseAfter(lease, place, err)
		} // else it has just come back
	}
	prev.finish()
	sent := time.Now()
	lease, place, err := l.enterInTime(ctx, req)
	switch judge(ctx, err) {
	case nil:
		prev.releasedByEnter()
		l.answered()
		if l.refused.Load() != 0 {
			l.refused.Store(0)
		}
	case errAway:
		l.enterFailed(sent)
		if l.refused.Load() < maxRefused {
			return prev.releaseAfter(l.unasked(ctx, req, err))
		}
	case errUnknown:
		l.checkAfter(ctx)
	}
	return lease, place, err
}

// enterInTime is an Enter that has to be answered within patience.
func (l *LocalOnly) enterInTime(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	short, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	lease, place, err := l.Backend.Enter(short, req)
	return lease, place, l.timedOut(ctx, short, err)
}

// timedOut makes ErrUnavailable of the error of a call whose patience has passed, not the caller's time.
func (l *LocalOnly) timedOut(ctx, short context.Context, err error) error {
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
	o := l.away.Load()
	if o != nil && l.broken(o, now) {
		l.end(o)
		l.begin(now)
		o = l.away.Load()
	}
	switch {
	case o != nil && o.local:
		return l.degradedLease(o), nil, nil
	case req.NoWait && failed != nil:
		return nil, nil, failed
	case o == nil && failed == nil:
		return nil, nil, nil
	case o == nil: // it was away, and has answered since
		return nil, again, nil
	case req.NoWait:
		return nil, nil, &Refused{RetryAfter: max(o.began.Add(l.ttl).Sub(now), l.pause)}
	}
	return nil, wait{o.ended}, nil
}

// wait is a place in no queue. All callers that wait in an outage share its channel, so it costs nothing.
type wait struct{ ended <-chan distributed.Lease }

// again is a place that is lost already: enter again.
var again = func() wait {
	ended := make(chan distributed.Lease)
	close(ended)
	return wait{ended}
}()

func (w wait) Granted() <-chan distributed.Lease { return w.ended }
func (w wait) Leave(context.Context) error       { return nil }

// enterFailed is failed for an Enter.
func (l *LocalOnly) enterFailed(sent time.Time) {
	l.failed(sent)
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.away.Load(); o != nil {
		o.enter = true
	}
}

// failed notes that what was sent then has got no answer. A request that was sent before the backend's last return says
// nothing of the time after it.
func (l *LocalOnly) failed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped() || sent.Before(l.ended) {
		return
	}
	now := time.Now()
	o := l.away.Load()
	switch {
	case o == nil:
		l.begin(now)
	case l.broken(o, now):
		l.end(o)
		l.begin(now)
	default:
		o.last = now
	}
}

// begin starts an outage. The caller holds mu; there is none.
func (l *LocalOnly) begin(now time.Time) {
	o := &outage{began: now, last: now, ended: make(chan distributed.Lease)}
	o.timer = time.AfterFunc(l.ttl, func() { l.serve(o) })
	l.away.Store(o)
	l.checkSoon()
}

// end ends an outage: callers that wait enter again. The caller holds mu.
func (l *LocalOnly) end(o *outage) {
	o.timer.Stop()
	l.away.Store(nil)
	if o.local {
		l.canceled = make(chan struct{})
	} else {
		close(o.ended)
	}
}

// serve is called when an outage is T old (rule O4).
func (l *LocalOnly) serve(o *outage) {
	l.mu.Lock()
	now := time.Now()
	switch {
	case l.stopped() || l.away.Load() != o:
		l.mu.Unlock()
		return
	case l.broken(o, now):
		l.end(o)
		l.begin(now)
		l.mu.Unlock()
		return
	}
	o.local = true
	l.refused.Store(0) // this is no refusal
	close(o.ended)
	close(l.canceled)
	l.mu.Unlock()
	l.logger.LogAttrs(context.Background(), slog.LevelWarn, "backend is away: locks are local to this process",
		slog.Duration("away", now.Sub(o.began)))
}

// answered ends the outage, if there is one. The first answer counts, to whatever request.
func (l *LocalOnly) answered() {
	if l.away.Load() == nil {
		return
	}
	l.mu.Lock()
	o := l.away.Load()
	if o == nil {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	l.end(o)
	l.ended = now
	if o.enter {
		l.refused.Add(1) // an answer to Enter takes it back
	}
	l.mu.Unlock()
	level, what := slog.LevelDebug, "backend answers again"
	if o.local {
		level, what = slog.LevelInfo, "backend is back: locks are leased again"
	}
	l.logger.LogAttrs(context.Background(), level, what, slog.Duration("away", now.Sub(o.began)))
}

// serves reports that callers are let in without a lease in o, and that o goes on.
func (l *LocalOnly) serves(o *outage, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away.Load() == o && o.local && !l.broken(o, now)
}

// knownBefore returns the outage that is known to go on and was known before a lease ended that lasted until then; nil if
// there is none. A process that was stopped meanwhile has no such knowledge (rule O5): what it learns after the end of its
// lease is too late, and what it learnt before is too old. Both clocks have to agree, because one stands still while a
// machine is suspended.
func (l *LocalOnly) knownBefore(until, now time.Time) *outage {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.away.Load()
	if o == nil || distributed.Over(o.began, until) || l.broken(o, now) {
		return nil
	}
	return o
}

// broken reports that no failure was noticed for too long (rule O5). The caller holds mu.
func (l *LocalOnly) broken(o *outage, now time.Time) bool {
	return max(now.Sub(o.last), now.Round(0).Sub(o.last.Round(0))) > l.silence
}

// nextPing implements pinger.next.
func (l *LocalOnly) nextPing(sinceLast time.Duration) (pause time.Duration, needed bool) {
	switch {
	case l.soon:
		return 0, true
	case l.away.Load() != nil:
		return l.pause - sinceLast, true
	case l.waiting.Load() > 0:
		return l.idle - sinceLast, true
	}
	return 0, false
}

// pingOnce implements pinger.ping.
func (l *LocalOnly) pingOnce() {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, l.pingTime)
	defer cancel()
	said := judgePing(ctx, l.Ping(ctx))
	switch {
	case l.stopped():
	case said == errAway:
		l.failed(sent)
	default: // an error that is no outage ends it, too: Enter passes on what is wrong
		l.answered()
	}
}
