package wllock

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/nametext"
)

// nameState is what a Locker knows about one name: its options, its counters, and how long its turns take. Names come
// from the program's text, so there are few of them; keys leave no memory.
type nameState struct {
	name         string
	prefix       string        // system:name:
	options      callOptions   // defaults and WithName; its threshold is not used
	limit        atomic.Int64  // threshold of this name; inherit: the default
	defaultLimit *atomic.Int64 // of the Locker
	turn         atomic.Int64  // moving average of the time a turn takes, ns; 0: none has ended
	wait         waitEstimate  // for WithShedHopeless

	waiting, held                                                              atomic.Int64
	acquired, handoffs, shed, timeouts, lost, overstays, unavailable, degraded atomic.Uint64
}

// inherit as the limit of a name: the default applies.
const inherit = Unlimited - 1

const (
	// averaging is the weight, as a divisor, of a new sample in the average of turn times: about the last 10 turns
	// count, so the estimate follows a change of load within as many turns.
	averaging = 8
	// unknownTurn stands for the time of a turn until the first one has ended.
	unknownTurn = 100 * time.Millisecond
	// maxRetryAfter bounds the estimate: nobody knows what comes later.
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

// retryAfter estimates when a caller is likely to get a turn, with so many callers ahead of it.
func (n *nameState) retryAfter(ahead int) time.Duration { // rule L2
	turn := time.Duration(n.turn.Load())
	if turn == 0 {
		turn = unknownTurn
	}
	if ahead > int(maxRetryAfter/turn) {
		return maxRetryAfter
	}
	return min(turn*time.Duration(ahead+1), maxRetryAfter)
}

// threshold is the number of callers that may wait: the call's own option beats its name's, which beats the default.
func (n *nameState) threshold(c *callOptions) int { // rule L2
	if c.ownLimit {
		return c.threshold
	}
	if limit := n.limit.Load(); limit != inherit {
		return int(limit)
	}
	return int(n.defaultLimit.Load())
}

// names are the states of all names seen. They are few and soon known, so the map is copied to add one and read without
// a lock.
type names struct {
	system   string
	settings *settings
	limit    atomic.Int64 // default threshold
	known    atomic.Pointer[map[string]*nameState]
	mu       sync.Mutex // held to replace known
}

func (n *names) all() map[string]*nameState {
	if m := n.known.Load(); m != nil {
		return *m
	}
	return nil
}

// get returns the state of a name, and checks the name when it is seen for the first time.
func (n *names) get(name string) (*nameState, error) {
	if state := n.all()[name]; state != nil {
		return state, nil
	}
	if err := checkPart("name", name); err != nil {
		return nil, err
	}
	state := &nameState{name: name, prefix: n.system + ":" + name + ":", options: n.settings.defaults, defaultLimit: &n.limit}
	state.options.ownLimit = false
	if with := n.settings.names[name]; with != nil {
		state.options = with(state.options)
	}
	state.limit.Store(inherit)
	if state.options.ownLimit {
		state.limit.Store(int64(state.options.threshold))
		state.options.ownLimit = false
	}
	return n.add(state), nil
}

// add returns the state known under that name: state itself, unless another was added before.
func (n *names) add(state *nameState) *nameState {
	n.mu.Lock()
	defer n.mu.Unlock()
	if first := n.all()[state.name]; first != nil {
		return first
	}
	more := map[string]*nameState{state.name: state}
	maps.Copy(more, n.all())
	n.known.Store(&more)
	return state
}

// setThreshold changes the threshold of a name, or the default if name is "".
func (n *names) setThreshold(name string, limit int) error {
	if err := checkThreshold(limit); err != nil {
		return fmt.Errorf("wllock: SetThreshold(%s, %d): %w", nametext.Quote(name), limit, err)
	}
	if name == "" {
		n.limit.Store(int64(limit))
		return nil
	}
	state, err := n.get(name)
	if err != nil {
		return fmt.Errorf("wllock: SetThreshold: %w", err)
	}
	state.limit.Store(int64(limit))
	return nil
}
