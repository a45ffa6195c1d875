package wllock

import (
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/report"
)

// Event is one step of a call: see WithEvents.
type Event struct {
	Kind            EventKind
	At              time.Time
	Name            string
	Key             string // system:name:key, raw unless WithKeyRedaction was given
	Shared          bool   // a read lock, or a permit
	Fence           uint64 // 0 for EventRefused, without a lease, and if the backend has no fences
	Handoff         bool   // the call was served from a running tenure
	Degraded        bool   // the lock is held, or was at its end, without a lease (LocalOnly)
	LocalWait       time.Duration
	DistributedWait time.Duration
	Held            time.Duration // for EventReleased and EventLost
	Err             error         // for EventRefused, the *Error that the call returns. For EventLost it Is ErrLeaseLost
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events. A call that acquires the lock has two: EventAcquired, and then EventReleased or EventLost.
const (
	EventAcquired EventKind = "acquired"
	EventRefused  EventKind = "refused"
	EventReleased EventKind = "released" // the function has returned, or the lock was released
	EventLost     EventKind = "lost"     // the function may still run. Follows EventReleased if only the answer to the release shows the loss
)

// WithEvents has f called for each lock that is acquired, refused, released or lost, without OpenTelemetry: for audits, and for counters of your
// own. nil: no events (default).
//
// f is called for one event at a time, in the order in which things happened to a key, on a goroutine that holds no lock. f may be slow, and may
// acquire locks. Calls do not wait for it: when 8,192 events wait, further ones are dropped (Stats.ReportsDropped). f may panic
// (Stats.ReportPanics). Close waits a second for the events that are left. A batch has events for its leader only, a DoAll for each key. A guard
// nested in a lock of the same key has none.
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
