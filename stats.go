package wllock

import (
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/report"
)

// Stats is what a Locker has counted since it was made.
type Stats struct {
	Total NameStats            // sum over all names
	Names map[string]NameStats // by name, for each name used so far. "(other)" sums up all names beyond 10,000

	Backend BackendStats

	LastLost *LostLock // the last lock that was lost while held. nil: none

	// Runs has the latest run of each job that this Locker ran with Lead or WithHoldAtLeast, the latest first, of at most 50 jobs. A
	// backend that is a distributed.Recorder knows those of all processes.
	Runs []distributed.Run

	// The logger, tracer and meter run in the background. Calls do not wait for them.
	ReportPanics   uint64 // their panics, which are swallowed. The first one is logged
	ReportsDropped uint64 // log lines, spans and measurements dropped because one of them was stuck
}

// LostLock is a lock that was lost while it was held.
type LostLock struct {
	At  time.Time
	Key string // system:name:key, raw unless WithKeyRedaction was given
	Err error  // it Is ErrLeaseLost. errors.As finds a *distributed.LostError if the Locker knows why the lease was not renewed
}

// Health says whether locks can be acquired at the backend, as far as this Locker knows from other calls: for a readiness check, or a decision
// before work begins. It sends no request and takes no time, however often it is called. It uses the results of calls, renewals and waiting
// requests. So an idle Locker learns of an outage, and of the end of a refusal, with its next call. Ping sends a request.
//
// Your service decides whether it is ready without locks. With LocalOnly it works on without the backend. If every replica reports "not ready"
// when a shared backend is away, no replica is left.
func (l *Locker) Health() BackendStats {
	s := BackendStats(l.policy.Status())
	s.Err = l.observer.Redaction.Error(s.Err)
	return s
}

// BackendStats is the state of the backend, as far as this Locker knows without asking.
type BackendStats struct {
	Available bool      // false: the backend is away, or has refused the last call that asked it
	Since     time.Time // when this state began
	Err       error     // why it is not available, in the backend's own words. nil if it is available
	Answered  time.Time // when it last answered any request. An idle Locker sends none. Zero: never yet, or not measured because the backend is in this process
}

// NameStats are the figures of one name. Waiting, Threshold and Held are current values. The others only grow, except TurnTime.
type NameStats struct {
	Waiting     int64         `json:"waiting"`      // callers now in a local queue, for each key never more than its threshold
	Threshold   int           `json:"threshold"`    // how many may wait for one key, Unlimited for "(other)", 0 in Total
	Held        int64         `json:"held"`         // callers that hold a lock now, nested guards not counted
	Acquired    uint64        `json:"acquired"`     // locks acquired
	Handoffs    uint64        `json:"handoffs"`     // locks acquired from a running tenure, without a request to the backend
	Shed        uint64        `json:"shed"`         // calls refused with ErrQueueFull
	Timeouts    uint64        `json:"timeouts"`     // calls refused with ErrWaitTimeout
	Unavailable uint64        `json:"unavailable"`  // calls that failed with ErrUnavailable
	Lost        uint64        `json:"lost"`         // locks lost while held
	Overstays   uint64        `json:"overstays"`    // locks held for longer than WithLockTimeMax
	Degraded    uint64        `json:"degraded"`     // locks held without a lease when they ended (LocalOnly)
	Batches     uint64        `json:"batches"`      // runs of batch functions. Each counts once in Acquired
	Batched     uint64        `json:"batched"`      // callers served by these runs, without the callers that acquired the lock
	TurnTime    time.Duration `json:"turn_time_ns"` // moving average of a turn, from the head of the local queue to the release. Total has none
}

// Stats returns the current figures. Each is exact, but they are read at slightly different moments.
func (l *Locker) Stats() Stats {
	s := Stats{Names: map[string]NameStats{}, Backend: l.Health()}
	s.LastLost = (*LostLock)(l.observer.LastLost())
	s.Runs = l.observer.Runs()
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
