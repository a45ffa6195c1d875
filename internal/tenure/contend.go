package tenure

import "github.com/wllock/wllock/distributed"

// LeaseContended implements distributed.Watcher: another instance waits for the lease, or none does any more.
func (t *Tenure) LeaseContended(l distributed.Lease) {
	if !l.Contended() {
		t.readmit(l)
		return
	}
	t.mu.Lock()
	lingering := t.current.lingering && t.current.lease == l
	t.mu.Unlock()
	if lingering {
		t.endLinger()
	}
}

// readmit has the sharers look again that found the lease draining, since no other instance waits any more (rule T2). It
// asks all users: one that ends meanwhile lets nobody in beside it.
func (t *Tenure) readmit(l distributed.Lease) {
	var owners []Owner
	t.mu.Lock()
	if t.current.lease == l && t.users.mode == distributed.Shared {
		for u := t.users.first; u != nil; u = u.after {
			owners = append(owners, u.Owner)
		}
	}
	t.mu.Unlock()
	for _, o := range owners {
		o.Readmit()
	}
}
