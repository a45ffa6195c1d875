package report

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// Event is what happened to one caller, for the function of WithEvents.
type Event struct {
	Call // Key is as it is shown
	What EventKind
	At   time.Time
	Err  error // of Refused and Lost
}

// EventKind is what happened.
type EventKind uint8

// The kinds.
const (
	EventAcquired EventKind = iota
	EventRefused
	EventReleased
	EventLost
)

// Began is when the caller got the lock, of an event that is not Refused.
func (e *Event) Began() time.Time { return e.began() }

// tell has the user's function told, if there is one. It runs on a goroutine of its own, as all foreign code does (rule T10).
func (o *Observer) tell(what EventKind, at time.Time, c *Call, err error) {
	if o.listener == nil {
		return
	}
	o.events.put(report{call: c, run: func(r *report) {
		e := Event{Call: *r.call, What: what, At: at, Err: err}
		e.Key = o.Redaction.Name(e.Key)
		o.listener(e)
	}})
}

// ended tells that a hold has ended. loss is why, if it was lost; nil: it was not.
func (o *Observer) ended(now time.Time, c *Call, loss error, degraded bool) {
	if o.listener == nil {
		return
	}
	own, what := *c, EventReleased // which others share
	own.Degraded = own.Degraded || degraded
	if loss != nil {
		what = EventLost
	}
	o.tell(what, now, &own, loss)
}

// lostUnnoticed tells of a lock of which only the answer to its release said that it was lost.
func (o *Observer) lostUnnoticed(n *Name, key string, err error) {
	now := time.Now()
	o.tell(EventLost, now, &Call{Name: n, Key: key, Mode: distributed.Exclusive, TurnAt: now}, o.Redaction.Error(err))
}
