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

// lostLines is how many locks that are lost in an outage have lines of their own.
const lostLines = 3

// stillEvery is the pause between two lines about the same outage, or the same refusal.
const stillEvery = time.Minute

// reporter writes the log lines of outages and refusals: few, however many callers meet one.
type reporter struct {
	logger *slog.Logger
	about  []slog.Attr   // the system and the backend
	ttl    time.Duration // after it, an old outage has no consequences any more

	refused atomic.Int64 // calls, since the last line

	refusal atomic.Pointer[refusal] // nil: the backend does not refuse. Written under mu

	mu        sync.Mutex // guards all below
	since     time.Time  // when the backend became available
	refusedAt time.Time  // when the last line about a refusal was written
	backAt    time.Time  // when the last outage ended; zero: there was none
	following bool
	timer     *time.Timer // of a line about consequences
	stopped   bool
	flaps     flaps
	consequences
}

// consequences of an outage, since the last line.
type consequences struct {
	unreleased int64 // leases
	lost       int64 // locks
}

func (c consequences) attrs() []slog.Attr {
	return []slog.Attr{slog.Int64("not_released", c.unreleased), slog.Int64("lost", c.lost)}
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
		r.logConsequences()
	}
	if r.flaps.timer != nil && r.flaps.timer.Stop() {
		r.logFlaps()
	}
}

func (r *reporter) log(level slog.Level, what string, more ...slog.Attr) {
	r.logger.LogAttrs(context.Background(), level, what, append(more, r.about...)...)
}

// begins notes that an outage begins, and reports whether it has lines of its own.
func (r *reporter) begins() (tells bool) {
	r.refused.Store(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.following = true
	return r.flaps.begins(time.Now())
}

// tells reports whether the outage that goes on has lines of its own.
func (r *reporter) tells() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flaps.outages <= flapLines
}

// follow logs the course of an outage until its end. tells: it has lines of its own, also before it has lasted for stillEvery.
func (r *reporter) follow(ctx context.Context, o *outage, tells bool, then string) {
	if tells {
		r.log(slog.LevelWarn, "backend is away: "+then, slog.Any("error", o.cause()))
	}
	tick := time.NewTicker(stillEvery)
	defer tick.Stop()
	var refused int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tells = true
			n := r.refused.Swap(0)
			refused += n
			r.log(slog.LevelWarn, "backend is still away", append(r.takeConsequences(), slog.Duration("away", time.Since(o.first)),
				slog.Int64("refused", n), slog.Any("error", o.cause()))...)
		case <-o.over:
			if o.follows != nil {
				o = o.follows
				continue
			}
			r.mu.Lock()
			r.following, r.since, r.backAt = false, time.Now(), time.Now()
			if !tells {
				r.ends(o)
			}
			r.mu.Unlock()
			if !tells {
				return
			}
			r.log(slog.LevelInfo, "backend is back", append(r.takeConsequences(),
				slog.Duration("away", time.Since(o.first)), slog.Int64("refused", refused+r.refused.Swap(0)))...)
			return
		}
	}
}

// follows counts a consequence of an outage and reports true, if there is one or was lately, and more than own of its kind have
// been counted: then a line tells of all of them together. The answer that ends an outage may be to the release of a lost
// lease, and be here before follow has seen the end.
func (r *reporter) follows(outage bool, count *int64, own int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !outage && !r.following && r.consequences == (consequences{}) && time.Since(r.backAt) > 2*r.ttl {
		return false
	}
	*count++
	if !r.following && r.timer == nil && !r.stopped {
		r.timer = time.AfterFunc(r.ttl, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.timer = nil
			r.logConsequences()
		})
	}
	return *count > own
}

// logConsequences writes the line for those that the end of an outage did not report. The caller holds mu.
func (r *reporter) logConsequences() {
	if r.following || r.flaps.timer != nil {
		return // a line of theirs tells
	}
	c := r.consequences
	r.consequences = consequences{}
	if c.unreleased == 0 && c.lost <= lostLines {
		return // each has had a line of its own
	}
	r.log(slog.LevelWarn, "locks lost or not released in an outage: others wait until the leases have expired", c.attrs()...)
}

func (r *reporter) takeConsequences() []slog.Attr {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.consequences
	r.consequences = consequences{}
	return c.attrs()
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
	r.log(slog.LevelWarn, "backend refuses", slog.Any("error", err), slog.Int64("refused", n))
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
