package outage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// LocalOnly is the policy of that name: while the one it wraps is away, it lets callers in without a lease.
//
//	              first failure known                     T old
//	answering ─────────────────────────▶ away: callers wait ────▶ served without a lease
//	    ▲                                   │                       │
//	    └──────────── any answer ───────────┴───────────────────────┘
//
// After one T every lease that others had is over, by whatever clock. T counts from when the first failure became known,
// not from when its question was sent, for others may have renewed their leases in between.
//
// It needs no Breaker: with the first failure nobody asks any more but one goroutine, the watch, that pings the backend
// until it answers. The watch lives while the backend is away, is doubted, or callers wait for a grant of it (who would
// otherwise not learn of an outage); it ends by itself.
type LocalOnly struct {
	distributed.Backend
	times
	logger *slog.Logger

	away    atomic.Pointer[stretch] // nil: the backend answers. Written under mu
	waiting atomic.Int64            // callers that wait for a grant
	refused atomic.Int32            // stretches in a row in which Enter failed, and that another answer ended

	wake chan struct{}   // holds one; hurries the watch
	ctx  context.Context // ends with Stop
	stop context.CancelFunc
	wg   sync.WaitGroup // the watch; Add under mu, unless closed

	mu       sync.Mutex    // guards all below and the stretches; never held while calling out
	ended    time.Time     // when the last stretch was ended by an answer
	moot     chan struct{} // closed while turns are served without a lease
	watching bool          // the watch runs
	doubted  bool          // it is to ask at once
	closed   bool
}

// times are all derived from T.
type times struct {
	ttl      time.Duration
	patience time.Duration // of an Enter: longer than that is no answer
	ping     time.Duration // the same of a ping
	pause    time.Duration // between two pings while the backend is away
	calm     time.Duration // the same while it is not known to be, and callers wait
	// silence is how long after one failure the next must come. The watch fails more often than this while the backend is
	// away; so whoever has heard nothing for longer was stopped itself, and knows nothing of the meantime.
	silence time.Duration
}

func timesOf(ttl time.Duration) times {
	t := times{ttl: ttl, patience: max(ttl/4, shortestPatience), ping: max(ttl/4, shortestPing)}
	t.pause = min(ttl/20, longestPause)
	t.calm = ttl / 8
	t.silence = max(ttl/2, 2*(t.ping+t.pause))
	return t
}

const (
	// shortestPatience is long for any network: an Enter that is broken off is repeated, which helps no slow server.
	shortestPatience = 250 * time.Millisecond
	shortestPing     = 50 * time.Millisecond
	// longestPause bounds how long after its return the backend is asked.
	longestPause = 250 * time.Millisecond
	// maxRefused is how often a backend may answer the watch and yet fail Enter, before its errors are passed on: it is
	// there, and refuses (its memory is full, a right is missing).
	maxRefused = 3
)

// stretch is a time in which nothing was answered. There is a new one when the backend has answered, or may have.
type stretch struct {
	began time.Time              // when the first failure became known
	over  chan distributed.Lease // never delivers; closed when service begins, or the stretch ends: Enter again
	timer *time.Timer            // of service; set once, under mu
	last  time.Time              // when the last failure became known
	local bool                   // turns are served without a lease
	enter bool                   // Enter has failed, too
}

// NewLocalOnly wraps b for leases of T ttl. What begins and ends is told to logger.
func NewLocalOnly(b distributed.Backend, ttl time.Duration, logger *slog.Logger) *LocalOnly {
	l := &LocalOnly{Backend: b, times: timesOf(ttl), logger: logger, wake: make(chan struct{}, 1), moot: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Stop ends the background work and waits for it. The backend stays open.
func (l *LocalOnly) Stop() {
	l.mu.Lock()
	l.closed = true
	if s := l.away.Load(); s != nil {
		s.timer.Stop()
	}
	l.mu.Unlock()
	l.stop()
	l.wg.Wait()
}

// Degraded reports that turns are served without a lease now.
func (l *LocalOnly) Degraded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.away.Load()
	return s != nil && s.local
}

// serves reports that turns are served in the stretch s, and that it is still the same one.
func (l *LocalOnly) serves(s *stretch, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away.Load() == s && s.local && !l.broken(s, now)
}

// before returns the stretch that is known to go on, and was known before the lease ended that lasted until then; nil if
// there is none. A process that was stopped meanwhile has no such knowledge: what it learns after its lease is too late,
// and what it learnt before is too old. Both clocks have to say so, for one stands still while a machine is suspended.
func (l *LocalOnly) before(until, now time.Time) *stretch {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.away.Load()
	if s == nil || distributed.Over(s.began, until) || l.broken(s, now) {
		return nil
	}
	return s
}

// broken reports that nothing was heard for too long. The caller holds mu.
func (l *LocalOnly) broken(s *stretch, now time.Time) bool {
	return max(now.Sub(s.last), now.Round(0).Sub(s.last.Round(0))) > l.silence
}

// enterFailed is failed for an Enter.
func (l *LocalOnly) enterFailed(sent time.Time) {
	l.failed(sent)
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.away.Load(); s != nil {
		s.enter = true
	}
}

// failed notes that what was sent then has got no answer. A failure that has lasted since before the backend's last
// return says nothing of the time after it.
func (l *LocalOnly) failed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || sent.Before(l.ended) {
		return
	}
	now := time.Now()
	s := l.away.Load()
	switch {
	case s == nil:
		l.begin(now)
	case l.broken(s, now):
		l.finish(s)
		l.begin(now)
	default:
		s.last = now
	}
}

// begin starts a stretch. The caller holds mu; there is none.
func (l *LocalOnly) begin(now time.Time) {
	s := &stretch{began: now, last: now, over: make(chan distributed.Lease)}
	s.timer = time.AfterFunc(l.ttl, func() { l.serve(s) })
	l.away.Store(s)
	l.doubt()
}

// finish ends a stretch: those who wait enter again. The caller holds mu.
func (l *LocalOnly) finish(s *stretch) {
	s.timer.Stop()
	l.away.Store(nil)
	if s.local {
		l.moot = make(chan struct{})
	} else {
		close(s.over)
	}
}

// serve is called when a stretch is T old.
func (l *LocalOnly) serve(s *stretch) {
	l.mu.Lock()
	now := time.Now()
	switch {
	case l.closed || l.away.Load() != s:
		l.mu.Unlock()
		return
	case l.broken(s, now):
		l.finish(s)
		l.begin(now)
		l.mu.Unlock()
		return
	}
	s.local = true
	l.refused.Store(0) // this is no refusal
	close(s.over)
	close(l.moot)
	l.mu.Unlock()
	l.logger.LogAttrs(context.Background(), slog.LevelWarn, "backend is away: locks are had within this process only",
		slog.Duration("away", now.Sub(s.began)))
}

// answered ends the stretch, if there is one. The first answer counts, to whatever question.
func (l *LocalOnly) answered() {
	if l.away.Load() == nil {
		return
	}
	l.mu.Lock()
	s := l.away.Load()
	if s == nil {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	l.finish(s)
	l.ended = now
	if s.enter {
		l.refused.Add(1) // an answer to Enter takes it back
	}
	l.mu.Unlock()
	level, what := slog.LevelDebug, "backend answers again"
	if s.local {
		level, what = slog.LevelInfo, "backend is back: locks are leased again"
	}
	l.logger.LogAttrs(context.Background(), level, what, slog.Duration("away", now.Sub(s.began)))
}

// Await implements tenure.Outage.
func (l *LocalOnly) Await() (moot <-chan struct{}) {
	l.waiting.Add(1) // before the watch, under mu, looks at it for the last time; or else it is not running below
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch()
	return l.moot
}

// Awaited implements tenure.Outage.
func (l *LocalOnly) Awaited() { l.waiting.Add(-1) }
