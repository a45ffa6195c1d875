package simulated

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/wrap"
	"github.com/wllock/wllock/test/history"
)

// noted is a backend whose queue is noted, as history.Journal.Places notes it: who has a place since when, and who is served. These are calls for
// the key "queue of KEY".
type noted struct {
	distributed.Observable
	p *process
}

// Unwrap is for what looks at the backend itself.
func (b noted) Unwrap() distributed.Backend { return b.Observable }

// Enter implements distributed.Backend.
func (b noted) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if req.NoWait {
		return b.Observable.Enter(ctx, req)
	}
	c := &history.Call{Process: b.p.name, Asked: time.Now().UnixNano(), Request: history.Request{
		Caller: req.Instance, Key: "queue of " + req.Key, Shared: req.Mode == distributed.Shared && req.Limit == 0, Permits: req.Limit,
	}}
	b.p.w.with(func() { b.p.w.history.Calls = append(b.p.w.history.Calls, c) })
	granted := func(l distributed.Lease) distributed.Lease {
		e := history.Event{What: history.Held}
		if l.Healthy() {
			e.Until = time.Now().UnixNano()
		}
		b.p.note([]*history.Call{c}, e)
		b.p.note([]*history.Call{c}, history.Event{What: history.Back})
		return l
	}
	lease, place, err := b.Observable.Enter(ctx, req)
	switch {
	case err != nil:
		b.p.note([]*history.Call{c}, history.Event{What: history.Back})
	case lease != nil:
		granted(lease)
	default:
		b.p.note([]*history.Call{c}, history.Event{What: history.Queued})
		place = wrap.Place(place, granted)
	}
	return lease, place, err
}
