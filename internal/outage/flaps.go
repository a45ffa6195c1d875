package outage

import (
	"log/slog"
	"time"
)

// flapLines is how many outages within stillEvery have lines of their own. One line a minute tells of all others: a backend that
// comes and goes has many a second.
const flapLines = 3

// flaps are the outages within the last minute. Guarded by reporter.mu.
type flaps struct {
	began   time.Time // of the minute
	outages int       // in it
	untold  int       // of them, that have had no lines of their own
	away    time.Duration
	refused int64
	cause   error       // of the last one
	timer   *time.Timer // of the line; nil: all have been told
}

// begins counts an outage, and reports whether it has lines of its own.
func (f *flaps) begins(now time.Time) (tells bool) {
	if f.timer == nil && now.Sub(f.began) >= stillEvery {
		*f = flaps{began: now}
	}
	f.outages++
	return f.outages <= flapLines
}

// ends notes the end of an outage without lines of its own. The caller holds mu.
func (r *reporter) ends(o *outage) {
	f := &r.flaps
	f.untold++
	f.away += time.Since(o.first)
	f.refused += r.refused.Swap(0)
	f.cause = o.cause()
	if f.timer == nil && !r.stopped {
		f.timer = time.AfterFunc(max(time.Until(f.began.Add(stillEvery)), 0), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.flaps.timer != nil { // else stop was first
				r.logFlaps()
			}
		})
	}
}

// logFlaps writes the line for the outages without lines of their own, and begins another minute, in which none has any: it ends with
// the first minute without an outage. The caller holds mu.
func (r *reporter) logFlaps() {
	f := r.flaps
	r.flaps = flaps{began: time.Now(), outages: flapLines}
	var c consequences
	if !r.following { // else the lines about the outage that goes on tell of them
		c, r.consequences = r.consequences, consequences{}
	}
	r.log(slog.LevelWarn, "backend comes and goes", append(c.attrs(), slog.Int("outages", f.untold), slog.Duration("away", f.away),
		slog.Int64("refused", f.refused), slog.Any("error", f.cause))...)
}
