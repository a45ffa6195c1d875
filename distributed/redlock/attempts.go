package redlock

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/internal/identity"
)

// attempts are those of a Backend: all that ask, wait or hold.
type attempts struct {
	mu      sync.Mutex
	last    uint64              // guarded by mu; the latest number
	byToken map[string]*attempt // guarded by mu
	sweepAt int                 // guarded by mu; the size at which byID is swept
	closed  bool                // guarded by mu
	calls   sync.WaitGroup      // calls of Enter under way; Add under mu, unless closed
}

// minSweep is the size below which a sweep is not worth it.
const minSweep = 64

func newAttempts() *attempts { return &attempts{byToken: make(map[string]*attempt)} }

// next names an attempt that begins. Its number is the time in microseconds, so that numbers order the attempts of all processes by age
// as well as clocks agree, and greater than those before.
func (all *attempts) next() identity.Attempt {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.last = max(all.last+1, uint64(time.Now().UnixMicro()))
	return identity.NewAttempt(all.last)
}

// add registers an attempt before it is sent, because notices about it can come before the reply. If it returns true, calls
// counts one more; false after close.
func (all *attempts) add(a *attempt) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	all.calls.Add(1)
	all.byToken[a.token] = a
	if len(all.byToken) >= all.sweepAt {
		all.sweep()
	}
	return true
}

// inherit registers an attempt that takes over the place of another; false after close.
func (all *attempts) inherit(h *attempt) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !all.closed {
		all.byToken[h.token] = h
	}
	return !all.closed
}

// sweep forgets leases that were lost and never released. It runs each time the number of attempts has doubled, so it costs
// each of them a constant. The caller holds mu.
func (all *attempts) sweep() {
	for token, a := range all.byToken {
		if a.stale() {
			delete(all.byToken, token)
		}
	}
	all.sweepAt = 2*len(all.byToken) + minSweep
}

// find returns an attempt; nil if it is not known any more.
func (all *attempts) find(token string) *attempt {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byToken[token]
}

func (all *attempts) forget(a *attempt) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byToken, a.token)
}

func (all *attempts) list() []*attempt {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Values(all.byToken))
}

// some returns any of these, so many at most.
func (all *attempts) some(most int) (some []*attempt) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, a := range all.byToken {
		if len(some) == most {
			break
		}
		some = append(some, a)
	}
	return some
}

// close takes no more attempts and returns those that there are; false: it was closed before. first is called at the first
// close, under mu.
func (all *attempts) close(first func()) ([]*attempt, bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil, false
	}
	all.closed = true
	first()
	return slices.Collect(maps.Values(all.byToken)), true
}

func (all *attempts) isClosed() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.closed
}
