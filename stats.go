package wllock

import (
	"time"

	"github.com/wllock/wllock/internal/report"
)

// Stats is what a Locker has counted since it was made.
type Stats struct {
	Total NameStats            // sum over all names
	Names map[string]NameStats // by name, for each name used so far. "(other)" has those of all beyond 10,000

	Backend BackendStats

	LastLost *LostLock // the last lock that was lost while held. nil: none was

	// The logger, tracer and meter run beside the calls, which do not wait for them.
	ReportPanics   uint64 // panics of theirs, swallowed. The first one is logged
	ReportsDropped uint64 // log lines, spans and measurements left out because they stood still
}

// LostLock is a lock that was lost while it was held.
type LostLock struct {
	At  time.Time
	Key string // system:name:key, raw unless WithKeyRedaction was given
	Err error  // it Is ErrLeaseLost. errors.As finds a *distributed.LostError if it is known why the lease was not renewed
}

// Health says whether locks can be acquired at the backend, as far as this Locker knows from what others have asked it: for a
// readiness check, or a decision before work begins. It asks nothing itself and takes no time, however often it is called. It
// knows the results of calls, renewals and waiting requests. An idle Locker learns of an outage with its next call, and of the
// end of a refusal, too. Ping asks.
//
// Whether a service without locks is ready is for the service to say. With LocalOnly it goes on without the backend, and if every replica is taken
// out of service when a backend that all of them share is away, none is left.
func (l *Locker) Health() BackendStats {
	s := BackendStats(l.policy.Status())
	s.Err = l.observer.Redaction.Error(s.Err)
	return s
}

// BackendStats says whether locks can be acquired at the backend, as far as this Locker knows without asking.
type BackendStats struct {
	Available bool      // false: it is away, or has refused the last call that asked it
	Since     time.Time // when that began
	Err       error     // why it is not available, with the backend's own words. nil if it is
	Answered  time.Time // when it last answered anything. An idle Locker asks nothing. Zero if never yet
}

// NameStats are the figures of one name. Waiting, Threshold and Held are current, the others grow.
type NameStats struct {
	Waiting     int64         `json:"waiting"`      // callers now in a local queue: for each key, never more than its threshold
	Threshold   int           `json:"threshold"`    // how many may wait for one key, Unlimited for "(other)", 0 in Total
	Held        int64         `json:"held"`         // callers that hold a lock now, nested guards not counted
	Acquired    uint64        `json:"acquired"`     // locks acquired
	Handoffs    uint64        `json:"handoffs"`     // those of them served from a running tenure
	Shed        uint64        `json:"shed"`         // calls refused with ErrQueueFull
	Timeouts    uint64        `json:"timeouts"`     // calls refused with ErrWaitTimeout
	Unavailable uint64        `json:"unavailable"`  // calls that failed with ErrUnavailable
	Lost        uint64        `json:"lost"`         // locks lost while held
	Overstays   uint64        `json:"overstays"`    // locks held for longer than WithLockTimeMax
	Degraded    uint64        `json:"degraded"`     // locks held without a lease when they ended (LocalOnly)
	Batches     uint64        `json:"batches"`      // runs of batch functions. Each is one of Acquired
	Batched     uint64        `json:"batched"`      // callers that were taken along in them, those that had the lock not counted
	TurnTime    time.Duration `json:"turn_time_ns"` // moving average of a turn, from the head of the local queue to the release. It is not summed up in Total
}

// Stats returns the current figures. Each is exact. Together they are of slightly different moments.
func (l *Locker) Stats() Stats {
	s := Stats{Names: map[string]NameStats{}, Backend: l.Health()}
	s.LastLost = (*LostLock)(l.observer.LastLost())
	s.ReportPanics, s.ReportsDropped = l.observer.Mishaps()
	for figures, threshold := range l.names.all() {
		one := statsOf(figures)
		s.Total.add(one)
		one.Threshold = threshold
		s.Names[figures.Label] = one
	}
	return s
}

func statsOf(n *report.Figures) NameStats {
	return NameStats{
		Waiting: n.Waiting.Load(), Held: n.Held.Load(),
		Acquired: n.Acquired.Load(), Handoffs: n.Handoffs.Load(), Shed: n.Shed.Load(), Timeouts: n.Timeouts.Load(),
		Unavailable: n.Unavailable.Load(), Lost: n.Lost.Load(), Overstays: n.Overstays.Load(),
		Degraded: n.Degraded.Load(), Batches: n.Batches.Load(), Batched: n.Batched.Load(),
		TurnTime: n.TurnTime(),
	}
}

func (s *NameStats) add(o NameStats) {
	s.Waiting += o.Waiting
	s.Held += o.Held
	s.Acquired += o.Acquired
	s.Handoffs += o.Handoffs
	s.Shed += o.Shed
	s.Timeouts += o.Timeouts
	s.Unavailable += o.Unavailable
	s.Lost += o.Lost
	s.Overstays += o.Overstays
	s.Degraded += o.Degraded
	s.Batches += o.Batches
	s.Batched += o.Batched
}
