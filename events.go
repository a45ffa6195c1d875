package wllock

import (
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/report"
)

// Event is what happened to one call: see WithEvents.
type Event struct {
	Kind            EventKind
	At              time.Time
	Name            string
	Key             string // system:name:key, raw unless WithKeyRedaction was given
	Shared          bool   // a read lock, or a permit
	Fence           uint64 // 0 of EventRefused, without fences, and without a lease
	Handoff         bool   // it was served from a running tenure
	Degraded        bool   // it has, or ended, without a lease of the backend (LocalOnly)
	LocalWait       time.Duration
	DistributedWait time.Duration
	Held            time.Duration // of EventReleased and EventLost
	Err             error         // of EventRefused the *Error that the call returns. Of EventLost it Is ErrLeaseLost
}

// EventKind is what an Event tells.
type EventKind string

// The kinds of events. A call that gets the lock has two: EventAcquired, and then EventReleased or EventLost.
const (
	EventAcquired EventKind = "acquired"
	EventRefused  EventKind = "refused"
	EventReleased EventKind = "released" // its function has returned, or the lock was released
	EventLost     EventKind = "lost"     // its function may still run. Also if only the answer to the release says so, after EventReleased
)

// WithEvents has f called for each lock that is acquired, refused, released and lost, without OpenTelemetry: for audits, and counters of
// one's own. nil: none (default).
//
// The calls come one after the other, in the order in which things happened to a key, on a goroutine that holds no lock. f may be slow,
// and may lock. Calls do not wait for it: when 8,192 events wait, further ones are dropped (Stats.ReportsDropped). It may panic
// (Stats.ReportPanics). Close waits a second for the events that are left. Of a batch only its leader has events, of a DoAll
// each key. A guard that is nested in a lock of the same key has none.
func WithEvents(f func(Event)) Option { return option(func(s *settings) { s.events = f }) }

// listener passes events on. nil: nobody listens.
func (s *settings) listener() func(report.Event) {
	if s.events == nil {
		return nil
	}
	kinds := [...]EventKind{
		report.EventAcquired: EventAcquired, report.EventRefused: EventRefused, report.EventReleased: EventReleased, report.EventLost: EventLost,
	}
	return func(r report.Event) {
		e := Event{
			Kind: kinds[r.What], At: r.At, Name: r.Name.Text, Key: r.Key, Shared: r.Mode == distributed.Shared, Fence: r.Fence, Handoff: r.Handoff,
			Degraded: r.Degraded, LocalWait: r.LocalWait, DistributedWait: r.DistributedWait, Err: r.Err,
		}
		if r.What >= report.EventReleased {
			e.Held = r.At.Sub(r.Began())
		}
		s.events(e)
	}
}
