package outage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// stillEvery is the pause between two lines about the same outage, or the same refusal.
const stillEvery = time.Minute

// reporter writes the log lines of outages and refusals: few, however many callers meet one.
type reporter struct {
	logger *slog.Logger
	about  []slog.Attr   // the system and the backend
	ttl    time.Duration // after it, an old outage has no consequences any more

	refused atomic.Int64 // calls, since the last line

	refusal atomic.Pointer[refusal] // nil: the backend does not refuse. Written under mu

	mu         sync.Mutex // guards all below
	since      time.Time  // when the backend became available
	refusedAt  time.Time  // when the last line about a refusal was written
	backAt     time.Time  // when the last outage ended; zero: there was none
	following  bool
	unreleased int64       // leases, since the last line
	timer      *time.Timer // of a line about them
	stopped    bool
}

// refusal is a time in which the backend answers Enter with refusals.
type refusal struct {
	since time.Time
	err   error
}

func newReporter(c Config) *reporter {
	r := &reporter{logger: c.Logger, ttl: c.TTL, since: time.Now(), about: []slog.Attr{slog.String("system", c.System)}}
	if name := backendName(c.Backend); name != "" {
		r.about = append(r.about, slog.String("backend", name))
	}
	return r
}

func (r *reporter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil && r.timer.Stop() {
		r.logUnreleased()
	}
}

func (r *reporter) log(level slog.Level, what string, more ...slog.Attr) {
	r.logger.LogAttrs(context.Background(), level, what, append(more, r.about...)...)
}

// follow logs the course of an outage until its end.
func (r *reporter) follow(ctx context.Context, o *outage, then string) {
	r.refused.Store(0)
	r.mu.Lock()
	r.following = true
	r.mu.Unlock()
	r.log(slog.LevelWarn, "backend is away: "+then, slog.String("error", o.cause().Error()))
	tick := time.NewTicker(stillEvery)
	defer tick.Stop()
	var refused int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n := r.refused.Swap(0)
			refused += n
			r.log(slog.LevelWarn, "backend is still away", append(r.takeUnreleased(), slog.Duration("away", time.Since(o.first)),
				slog.Int64("refused", n), slog.String("error", o.cause().Error()))...)
		case <-o.over:
			if o.follows != nil {
				o = o.follows
				continue
			}
			r.mu.Lock()
			r.following, r.since, r.backAt = false, time.Now(), time.Now()
			r.mu.Unlock()
			r.log(slog.LevelInfo, "backend is back", append(r.takeUnreleased(),
				slog.Duration("away", time.Since(o.first)), slog.Int64("refused", refused+r.refused.Swap(0)))...)
			return
		}
	}
}

// unreleasedIn notes a lease whose release got no answer, and reports whether that is written together with others:
// during an outage, or as one of its consequences.
func (r *reporter) unreleasedIn(outage bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !outage && r.unreleased == 0 && time.Since(r.backAt) > 2*r.ttl {
		return false
	}
	r.unreleased++
	if !r.following && r.timer == nil && !r.stopped {
		r.timer = time.AfterFunc(r.ttl, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.timer = nil
			r.logUnreleased()
		})
	}
	return true
}

// logUnreleased writes the line for leases that the end of an outage did not report. The caller holds mu.
func (r *reporter) logUnreleased() {
	if n := r.unreleased; n > 0 && !r.following {
		r.unreleased = 0
		r.log(slog.LevelWarn, "locks not released: others wait until their leases have expired", slog.Int64("locks", n))
	}
}

func (r *reporter) takeUnreleased() []slog.Attr {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.unreleased
	r.unreleased = 0
	return []slog.Attr{slog.Int64("not_released", n)}
}

// answered notes what an Enter was answered.
func (r *reporter) answered(err error) {
	switch {
	case errors.Is(err, distributed.ErrRefused):
		r.refusedBy(err)
	case r.refusal.Load() != nil:
		r.mu.Lock()
		r.refusal.Store(nil)
		r.since = time.Now()
		r.mu.Unlock()
	}
}

// refusedBy logs a refusal, at most once in stillEvery.
func (r *reporter) refusedBy(err error) {
	n := r.refused.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	was := r.refusal.Load()
	if was == nil {
		was = &refusal{since: now}
	}
	r.refusal.Store(&refusal{since: was.since, err: err})
	if !r.refusedAt.IsZero() && now.Sub(r.refusedAt) < stillEvery {
		return
	}
	r.refusedAt = now
	r.refused.Add(-n)
	r.log(slog.LevelWarn, "backend refuses", slog.String("error", err.Error()), slog.Int64("refused", n))
}

// status is that of a backend that is not away.
func (r *reporter) status() Status {
	if no := r.refusal.Load(); no != nil {
		return Status{Since: no.since, Err: no.err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{Available: true, Since: r.since}
}
