package sqllock

import "sync"

// names are locks whose rows are there, as far as this process knows. It need not be right: an update that finds no row is followed
// by what finds out why.
type names struct {
	mu  sync.RWMutex
	all map[string]struct{} // guarded by mu
}

// maxNames bounds what is remembered: a megabyte or two. Beyond that it is learnt anew.
const maxNames = 10_000

func (n *names) has(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, is := n.all[name]
	return is
}

// note notes a name whose row is there since a statement was carried out.
func (n *names) note(name string, err error) {
	if err != nil || n.has(name) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil || len(n.all) >= maxNames {
		n.all = make(map[string]struct{})
	}
	n.all[name] = struct{}{}
}

func (n *names) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, name)
}
