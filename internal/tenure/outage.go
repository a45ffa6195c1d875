package tenure

import (
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/watch"
)

// Outage is a Backend that knows when what it stands for is away.
type Outage interface {
	// Adopt makes of a lease that was granted the one that callers work under.
	Adopt(distributed.Lease) distributed.AsyncLease
	// Await says that a caller begins to wait for a grant. The channel is closed when that is of no use any more: Enter
	// answers at once then. Awaited says that the wait is over.
	Await() (moot <-chan struct{})
	Awaited()
}

func (g *Group) adopt(l distributed.Lease) distributed.AsyncLease {
	if o := g.config.Outage; o != nil {
		return o.Adopt(l)
	}
	return watch.Async(l)
}

// Degraded reports that the caller works without a lease of the backend's, be it since its start or since that one ran out.
func (u *Use) Degraded() bool { return degraded(u.lease) }

// degraded: the leases of an Outage can say so.
func degraded(l distributed.Lease) bool {
	d, ok := l.(interface{ Degraded() bool })
	return ok && d.Degraded()
}

// LeaseRenewed implements distributed.RenewalWatcher.
func (t *Tenure) LeaseRenewed(l distributed.Lease, _ time.Time, err error) {
	tell := t.group.config.Renewed
	if tell == nil {
		return
	}
	t.mu.Lock()
	ours, tag := t.lease == l, t.tag
	t.mu.Unlock()
	if ours { // else by now t may be another key's
		tell(tag, err)
	}
}
