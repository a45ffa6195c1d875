package wllock

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/report"
)

// nameState is what a Locker knows about one name: its options and its figures.
type nameState struct {
	report.Name
	prefix       string        // system:name:
	options      callOptions   // defaults and WithName; its threshold is not used
	limit        atomic.Int64  // threshold of this name; inherit: the default
	defaultLimit *atomic.Int64 // of the Locker
}

// maxNames bounds the memory that names take: programs have dozens of them, so thousands are keys by mistake, each with
// its own series in metrics.
const maxNames = 10_000

// inherit as the limit of a name: the default applies.
const inherit = Unlimited - 1

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
	limit    atomic.Int64 // default threshold
	known    sync.Map     // *nameState, by name

	mu     sync.Mutex   // held to add to known
	count  atomic.Int64 // of known; written under mu
	others atomic.Pointer[report.Figures]
	full   func() // called for the first name beyond maxNames
}

// all returns the figures of each name, with its threshold, and those of all others, which have none.
func (n *names) all() iter.Seq2[*report.Figures, int] {
	return func(yield func(*report.Figures, int) bool) {
		for _, state := range n.known.Range {
			if s := state.(*nameState); !yield(s.Figures, s.threshold(&s.options)) {
				return
			}
		}
		if o := n.others.Load(); o != nil {
			yield(o, Unlimited)
		}
	}
}

// get returns the state of a name, and checks the name when it is seen for the first time.
func (n *names) get(name string) (*nameState, error) {
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
		report.Figures
	}{Figures: report.Figures{Label: name}}
	state := &both.nameState
	state.Name, state.prefix, state.defaultLimit = report.Name{Figures: &both.Figures, Text: name}, n.system+":"+name+":", &n.limit
	state.options = n.settings.defaults
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
		if first, ok := n.known.Load(state.Text); ok {
			return first.(*nameState)
		}
		if keep || n.count.Load() < maxNames {
			n.known.Store(state.Text, state)
			n.count.Add(1)
			return state
		}
	}
	if n.others.Load() == nil && n.others.CompareAndSwap(nil, &report.Figures{Label: report.Others}) {
		n.full()
	}
	state.Figures = n.others.Load()
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
