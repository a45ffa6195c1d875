package redislock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wllock/wllock/internal/identity"
)

// attempts are those of a Backend: all that ask, wait or hold.
type attempts struct {
	last atomic.Uint64 // the latest number

	mu      sync.Mutex
	byID    map[identity.Attempt]*attempt // guarded by mu
	sweepAt int                           // guarded by mu; the size at which byID is swept
	closed  bool                          // guarded by mu
	calls   sync.WaitGroup                // calls of Enter under way; Add under mu, unless closed
}

// minSweep is the size below which a sweep is not worth it.
const minSweep = 64

// newAttempts returns none. Their numbers grow from first.
func newAttempts(first uint64) *attempts {
	all := &attempts{byID: make(map[identity.Attempt]*attempt)}
	all.last.Store(first)
	return all
}

// next returns the id of an attempt that begins.
func (all *attempts) next() identity.Attempt { return identity.NewAttempt(all.last.Add(1)) }

// add registers an attempt before it is sent, because its grant can come before the reply (rule R4). If it returns true,
// calls counts one more; false after close.
func (all *attempts) add(a *attempt) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	all.calls.Add(1)
	all.byID[a.id] = a
	if len(all.byID) >= all.sweepAt {
		all.sweep()
	}
	return true
}

// sweep forgets what has ended without anybody reporting it: leases lost and never released, places lost. It runs each
// time the number of attempts has doubled, so it costs each of them a constant. The caller holds mu.
func (all *attempts) sweep() {
	for id, a := range all.byID {
		if a.stale() {
			delete(all.byID, id)
		}
	}
	all.sweepAt = 2*len(all.byID) + minSweep
}

// find returns an attempt; nil if it is not known any more.
func (all *attempts) find(id identity.Attempt) *attempt {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

func (all *attempts) forget(a *attempt) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byID, a.id)
}

func (all *attempts) list() []*attempt {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Values(all.byID))
}

// close takes no more attempts and returns those that there are; false: it was closed before.
func (all *attempts) close() ([]*attempt, bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil, false
	}
	all.closed = true
	return slices.Collect(maps.Values(all.byID)), true
}

func (all *attempts) isClosed() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.closed
}
