package wllock

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/nametext"
)

// nameState is what a Locker knows of one name: its options, its counters, and how long its turns take. Names come from
// the program's text, so there are few of them; keys leave no memory.
type nameState struct {
	name    string
	prefix  string       // system:name:
	options callOptions  // defaults and WithName; its threshold is not used
	limit   atomic.Int64 // threshold of this name; inherit: the Locker's
	turn    atomic.Int64 // moving average of the time a turn takes, ns; 0: none seen
	pace    pace         // for WithShedHopeless

	waiting, held                                                              atomic.Int64
	acquired, handoffs, shed, timeouts, lost, overstays, unavailable, degraded atomic.Uint64
}

// inherit as the limit of a name: the Locker's default applies.
const inherit = Unlimited - 1

const (
	// averaging is the weight, as a divisor, of a new sample in the average of turn times: that of the last 10 turns
	// or so counts, so the estimate follows a change of load within as many turns.
	averaging = 8
	// unknownTurn stands for the time of a turn as long as none has ended.
	unknownTurn = 100 * time.Millisecond
	// maxRetryAfter bounds the estimate: later than that nobody knows.
	maxRetryAfter = 30 * time.Second
)

// took notes how long a turn was. Samples that meet may be lost, which an average does not mind.
func (n *nameState) took(d time.Duration) {
	old := n.turn.Load()
	if old == 0 {
		n.turn.Store(max(int64(d), 1))
		return
	}
	n.turn.Store(max(old+(int64(d)-old)/averaging, 1))
}

// retryAfter estimates when a turn is likely to be had, with so many callers ahead.
func (n *nameState) retryAfter(ahead int) time.Duration {
	turn := time.Duration(n.turn.Load())
	if turn == 0 {
		turn = unknownTurn
	}
	if ahead > int(maxRetryAfter/turn) {
		return maxRetryAfter
	}
	return min(turn*time.Duration(ahead+1), maxRetryAfter)
}

// names are the states of all names seen. They are few and soon known, so the map is copied to add one and read without a
// lock.
type names struct {
	known atomic.Pointer[map[string]*nameState]
	mu    sync.Mutex // held to replace known
}

func (n *names) all() map[string]*nameState {
	if m := n.known.Load(); m != nil {
		return *m
	}
	return nil
}

// add returns the state under that name, which is n unless another was added before.
func (n *names) add(state *nameState) *nameState {
	n.mu.Lock()
	defer n.mu.Unlock()
	if first := n.all()[state.name]; first != nil {
		return first
	}
	more := maps.Clone(n.all())
	if more == nil {
		more = map[string]*nameState{}
	}
	more[state.name] = state
	n.known.Store(&more)
	return state
}

// name returns the state of a name, checking it when it is seen for the first time.
func (l *Locker) name(name string) (*nameState, error) {
	if n := l.names.all()[name]; n != nil {
		return n, nil
	}
	if err := checkPart("name", name); err != nil {
		return nil, err
	}
	n := &nameState{name: name, prefix: l.system + ":" + name + ":", options: l.settings.defaults}
	n.options.ownLimit = false
	if with := l.settings.names[name]; with != nil {
		n.options = with(n.options)
	}
	n.limit.Store(inherit)
	if n.options.ownLimit {
		n.limit.Store(int64(n.options.threshold))
		n.options.ownLimit = false
	}
	return l.names.add(n), nil
}

// threshold is the number of callers that may wait, by the call's own option, its name's, or the default.
func (l *Locker) threshold(n *nameState, c *callOptions) int {
	if c.ownLimit {
		return c.threshold
	}
	if limit := n.limit.Load(); limit != inherit {
		return int(limit)
	}
	return int(l.limit.Load())
}

// SetThreshold changes the threshold of a name while the Locker runs; name "" is the default, for all names without one
// of their own. Callers that wait already stay.
func (l *Locker) SetThreshold(name string, n int) error {
	if err := checkThreshold(n); err != nil {
		return fmt.Errorf("wllock: SetThreshold(%s, %d): %w", nametext.Quote(name), n, err)
	}
	if name == "" {
		l.limit.Store(int64(n))
		return nil
	}
	state, err := l.name(name)
	if err != nil {
		return fmt.Errorf("wllock: SetThreshold: %w", err)
	}
	state.limit.Store(int64(n))
	return nil
}

// Stats is what a Locker has counted since it was made.
type Stats struct {
	Total NameStats            // of all names together
	Names map[string]NameStats // of each name used so far
}

// NameStats are the figures of one name. Waiting and Held are of now, the others grow.
type NameStats struct {
	Waiting     int64         // callers in a local queue now
	Held        int64         // callers that hold a lock now, nested guards not counted
	Acquired    uint64        // locks had
	Handoffs    uint64        // of these, served from a running tenure
	Shed        uint64        // refused with ErrQueueFull
	Timeouts    uint64        // refused with ErrWaitTimeout
	Unavailable uint64        // failed with ErrUnavailable
	Lost        uint64        // locks lost while held
	Overstays   uint64        // locks held for longer than WithLockTimeMax
	Degraded    uint64        // locks that were held without a lease at their end (LocalOnly)
	TurnTime    time.Duration // moving average of how long a turn takes; not summed up in Total
}

// Stats returns the figures of now. Each is exact; together they are of slightly different moments.
func (l *Locker) Stats() Stats {
	s := Stats{Names: map[string]NameStats{}}
	for name, n := range l.names.all() {
		one := n.stats()
		s.Names[name] = one
		s.Total.add(one)
	}
	return s
}

func (n *nameState) stats() NameStats {
	return NameStats{
		Waiting: n.waiting.Load(), Held: n.held.Load(),
		Acquired: n.acquired.Load(), Handoffs: n.handoffs.Load(), Shed: n.shed.Load(), Timeouts: n.timeouts.Load(),
		Unavailable: n.unavailable.Load(), Lost: n.lost.Load(), Overstays: n.overstays.Load(),
		Degraded: n.degraded.Load(),
		TurnTime: time.Duration(n.turn.Load()),
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
}
