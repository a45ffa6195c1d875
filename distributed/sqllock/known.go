package sqllock

import (
	"slices"
	"sync"
)

// known are the attempts of this process that ask, wait or hold.
type known struct {
	mu      sync.Mutex // guards all below
	byToken map[string]*attempt
	byName  map[string][]*attempt // by the lock; so that a key that nobody uses takes no memory, none is empty
}

func (k *known) add(a *attempt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byToken[a.Wire.token] = a
	k.byName[a.Wire.name] = append(k.byName[a.Wire.name], a)
}

func (k *known) remove(a *attempt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byToken, a.Wire.token)
	rest := slices.DeleteFunc(k.byName[a.Wire.name], func(one *attempt) bool { return one == a })
	if k.byName[a.Wire.name] = rest; len(rest) == 0 {
		delete(k.byName, a.Wire.name)
	}
}

// of returns those of a lock.
func (k *known) of(name string) []*attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.byName[name])
}

// others reports that others have the attempt's lock, or wait for it.
func (k *known) others(a *attempt) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.byName[a.Wire.name]) > 1
}

func (k *known) all() []*attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*attempt, 0, len(k.byToken))
	for _, a := range k.byToken {
		all = append(all, a)
	}
	return all
}

func (k *known) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.byToken)
}

func (k *known) find(token string) *attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byToken[token]
}

// poke has those who wait for a lock in this process, or hold it, look at it at once: one of them has changed it.
func (b *Backend) poke(name string, by *attempt) {
	for _, a := range b.known.of(name) {
		if a != by && (a.Waiting() || a.Held()) {
			a.Poke()
		}
	}
}
