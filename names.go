package wllock

import (
	"fmt"
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/nametext"
)

// nameState is what a Locker knows about one name: its options and its figures.
type nameState struct {
	*tally
	name         string
	prefix       string        // system:name:
	options      callOptions   // defaults and WithName; its threshold is not used
	limit        atomic.Int64  // threshold of this name; inherit: the default
	defaultLimit *atomic.Int64 // of the Locker
}

// tally is the figures of a name, or of all names beyond maxNames together: its counters, and how long its turns take.
type tally struct {
	label string       // in Stats and metrics
	turn  atomic.Int64 // moving average of the time a turn takes, ns; 0: none has ended
	wait  waitEstimate // for WithShedHopeless
	attrs atomic.Pointer[attributes]

	waiting, held                                                              atomic.Int64
	acquired, handoffs, shed, timeouts, lost, overstays, unavailable, degraded atomic.Uint64
	batches, batched                                                           atomic.Uint64
}

const (
	// maxNames bounds the memory that names take: programs have dozens of them, so thousands are keys by mistake, each with
	// its own series in metrics.
	maxNames = 10_000
	// firstNames is as many as most programs have, and few enough to copy when one is added.
	firstNames = 64
	// otherNames is the label of the names beyond. No name can be equal to it.
	otherNames = "(other)"
)

// inherit as the limit of a name: the default applies.
const inherit = Unlimited - 1

const (
	// averaging is the weight, as a divisor, of a new sample in the average of turn times: about the last 10 turns
	// count, so the estimate follows a change of load within as many turns.
	averaging = 8
	// settled is after how many equal samples the average is within 0.02% of them.
	settled = 8 * averaging
	// unknownTurn stands for the time of a turn until the first one has ended.
	unknownTurn = 100 * time.Millisecond
	// maxRetryAfter bounds the estimate: nobody knows what comes later.
	maxRetryAfter = 30 * time.Second
)

// took notes how long a turn was that served so many callers one after the other or, in a batch, together (rule B6). Samples
// that meet may be lost, which an average does not mind.
func (n *nameState) took(d time.Duration, callers int) {
	each, mean := int64(d)/int64(callers), n.turn.Load()
	if mean == 0 {
		mean = each
	}
	for range min(callers, settled) {
		mean += (each - mean) / averaging
	}
	n.turn.Store(max(mean, 1))
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

// names are the states of all names seen, up to maxNames. Keys leave no memory.
type names struct {
	system   string
	settings *settings
	limit    atomic.Int64                          // default threshold
	known    sync.Map                              // *nameState, by name
	first    atomic.Pointer[map[string]*nameState] // up to firstNames of known: a map that is only read is faster

	mu     sync.Mutex   // held to add to known and first
	count  atomic.Int64 // of known; written under mu
	others atomic.Pointer[tally]
	full   func() // called for the first name beyond maxNames
}

// all returns the figures by name, and those of all others.
func (n *names) all() iter.Seq2[*nameState, *tally] {
	return func(yield func(*nameState, *tally) bool) {
		for _, state := range n.known.Range {
			if s := state.(*nameState); !yield(s, s.tally) {
				return
			}
		}
		if o := n.others.Load(); o != nil {
			yield(nil, o)
		}
	}
}

// get returns the state of a name, and checks the name when it is seen for the first time.
func (n *names) get(name string) (*nameState, error) {
	if state := (*n.first.Load())[name]; state != nil {
		return state, nil
	}
	if state, ok := n.known.Load(name); ok {
		return state.(*nameState), nil
	}
	return n.make(name, n.settings.names[name] != nil)
}

// make returns the state of a new name. Beyond maxNames it is kept only if it must be: a state that is not kept serves one
// call as well, for its key is exact, and has its figures with those of the others.
func (n *names) make(name string, keep bool) (*nameState, error) {
	if err := checkPart("name", name); err != nil {
		return nil, err
	}
	both := &struct {
		nameState
		tally
	}{tally: tally{label: name}}
	state := &both.nameState
	state.name, state.prefix, state.defaultLimit = name, n.system+":"+name+":", &n.limit
	state.tally, state.options = &both.tally, n.settings.defaults
	state.options.ownLimit = false
	if with := n.settings.names[name]; with != nil {
		state.options = with(state.options)
	}
	state.limit.Store(inherit)
	if state.options.ownLimit {
		state.limit.Store(int64(state.options.threshold))
		state.options.ownLimit = false
	}
	return n.add(state, keep), nil
}

// add returns the state known under that name: state itself, unless another was added before.
func (n *names) add(state *nameState, keep bool) *nameState {
	if keep || n.count.Load() < maxNames {
		n.mu.Lock()
		defer n.mu.Unlock()
		if first, ok := n.known.Load(state.name); ok {
			return first.(*nameState)
		}
		if keep || n.count.Load() < maxNames {
			n.known.Store(state.name, state)
			if n.count.Add(1) <= firstNames {
				more := maps.Clone(*n.first.Load())
				more[state.name] = state
				n.first.Store(&more)
			}
			return state
		}
	}
	if n.others.Load() == nil && n.others.CompareAndSwap(nil, &tally{label: otherNames}) {
		n.full()
	}
	state.tally = n.others.Load()
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
	state, err := n.make(name, true)
	if err != nil {
		return fmt.Errorf("wllock: SetThreshold: %w", err)
	}
	state.limit.Store(int64(limit))
	return nil
}
