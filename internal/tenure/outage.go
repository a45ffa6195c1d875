package tenure

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Outage is a Backend wrapper that detects when the backend is unreachable.
type Outage interface {
	// EnterAt is Enter of the Backend for a caller that has just looked at the clock.
	EnterAt(ctx context.Context, now time.Time, req distributed.Request) (distributed.Lease, distributed.Place, error)
	// Adopt makes of a lease that was granted the one that callers work under.
	Adopt(distributed.Lease) distributed.Lease
	// Await says that a caller begins to wait for a grant. The channel is closed when the wait is of no use any more:
	// Enter answers at once then (rule O6). Awaited says that the wait has ended.
	Await() (canceled <-chan struct{})
	Awaited()
	// Ask asks the backend something else than Enter. It ends the question, or does not ask, when it would refuse an Enter.
	Ask(ctx context.Context, question func(context.Context) error) error
}

// Degradable is an optional ability of a lease that an Outage adopts or grants.
type Degradable interface {
	// Degraded reports that callers work under it without a lease of the backend (rule T9).
	Degraded() bool
	// Insist has the lease end with that of the backend, instead of becoming degraded (rule N1). It reports false if it is
	// degraded already.
	Insist() bool
}

func (g *Group) adopt(l distributed.Lease) distributed.Lease {
	if o := g.config.Outage; o != nil {
		return o.Adopt(l)
	}
	return l
}

// Degraded reports that the caller works without a lease of the backend, either from its start or since that expired.
func (u *Use) Degraded() bool { return degraded(u.lease) }

func degraded(l distributed.Lease) bool {
	d, ok := l.(Degradable)
	return ok && d.Degraded()
}

func insist(l distributed.Lease) bool {
	d, ok := l.(Degradable)
	return !ok || d.Insist()
}

// LeaseRenewed implements distributed.Watcher.
func (t *Tenure) LeaseRenewed(l distributed.Lease, _ time.Time, err error) {
	t.mu.Lock()
	ours, tag := t.current.lease == l, t.tag
	if ours && err == nil {
		t.share() // readers that stay for long are not to refuse others that do not wait, which nobody notices
	}
	t.mu.Unlock()
	if !ours {
		return // by now t may be another key's
	}
	if err == nil {
		t.readmit(l)
	}
	if renewed := t.group.config.Renewed; renewed != nil {
		renewed(tag, err)
	}
}
