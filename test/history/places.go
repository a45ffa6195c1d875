package history

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/wrap"
)

// places is a backend whose queue is noted.
type places struct {
	distributed.Observable
	journal *Journal
}

// Places returns b, and notes who asks it, who has a place in its queue since when, and who is served. These are calls of the instances, for
// the key "queue of KEY". What takes no place in the queue is not noted.
func (j *Journal) Places(b distributed.Observable) distributed.Backend {
	p := &places{b, j}
	if ttls, ok := b.(distributed.TTLRegistry); ok {
		return registered{p, ttls}
	}
	return p
}

// registered is places of a backend that knows the longest TTL in use, for LocalOnly.
type registered struct {
	*places
	ttls distributed.TTLRegistry
}

// LongestTTL implements distributed.TTLRegistry.
func (r registered) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	return r.ttls.LongestTTL(ctx, system, own)
}

// Unwrap is for what looks at the backend itself.
func (p *places) Unwrap() distributed.Backend { return p.Observable }

// Enter implements distributed.Backend.
func (p *places) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if req.NoWait {
		return p.Observable.Enter(ctx, req)
	}
	e := p.journal.Ask(Request{
		Caller: req.Instance, Key: "queue of " + req.Key, Shared: req.Mode == distributed.Shared && req.Limit == 0, Permits: req.Limit,
	})
	lease, place, err := p.Observable.Enter(ctx, req)
	switch {
	case err != nil:
		e.Back(err)
	case lease != nil:
		e.granted(lease)
	default:
		e.Note(Event{What: Queued})
		place = wrap.Place(place, e.granted)
	}
	return lease, place, err
}

// granted notes the moment of a grant, if its lease is certain then. How long the lease is held is not noted.
func (e Entry) granted(l distributed.Lease) distributed.Lease {
	v := Event{At: Now(), What: Held}
	if l.Healthy() {
		v.Until = v.At
	}
	e.Note(v)
	e.Back(nil)
	return l
}
