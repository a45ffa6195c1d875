package memlock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// permitFlaws are mistakes of permits.
var permitFlaws = map[string]flaw{
	"a limit is ignored": {
		caught: "at most so many permits are held, and a free one is granted at once",
		ask:    func(r *distributed.Request) { r.Limit = 0 },
	},
	"a limit is off by one": {
		caught: "no wait takes a free permit and is never queued",
		ask:    func(r *distributed.Request) { r.Limit = more(r.Limit) },
	},
	"a permit barges": {
		caught: "the head that waits for a permit holds up all behind it",
		enter:  enterAsBargingPermit,
	},
	"a permit goes to the last in the queue": {
		caught: "permits are first come first served",
		queued: func(p *place) { locked(p.shard, func() { toFront(p) }) },
	},
	"the first limit stays": {
		caught: "a smaller limit admits nobody until fewer are held",
		ask: func(r *distributed.Request) {
			if r.Limit == 2 {
				r.Limit = 4
			}
		},
	},
	"a permit enters beside an exclusive lease": {
		caught: "an exclusive request waits for all permits, and permits behind it for that",
		ask: func(r *distributed.Request) {
			if r.Limit == 0 {
				r.Mode, r.Limit = distributed.Shared, 1
			}
		},
	},
	"readers are not counted": {
		caught: "readers and permits count alike",
		ask: func(r *distributed.Request) {
			if r.Limit > 0 {
				r.Limit++ // the one reader there
			}
		},
	},
	"one permit enters at a time": {
		caught: "as many permits as are free enter together",
		queued: func(p *place) { p.limit = min(p.limit, 1) },
	},
	"a second release gives a permit back again": {
		caught: "a permit that is released twice is one permit",
		release: func(l *lease) error {
			if e := l.shard.entries[l.key]; l.state != owner && e != nil {
				return e.owners[0].Release(context.Background())
			}
			return l.Release(context.Background())
		},
	},
	"a permit as prev is ignored": {
		caught: "a permit is released as prev in the same exchange",
		ask:    func(r *distributed.Request) { r.Prev = nil },
	},
	"an exclusive limit is ignored": {
		caught: "a limit that makes no sense is an error",
		ask: func(r *distributed.Request) {
			if r.Mode == distributed.Exclusive {
				r.Limit = 0
			}
		},
	},
	"one permit that expires ends all": {
		caught:  "a permit expires alone, and not before Until",
		entered: func(l *lease) { time.AfterFunc(l.ttl/2, func() { endWithFirst(l) }) },
	},
	"permits are not renewed": {
		caught:  "permits outlive their TTL, renewed each by itself",
		entered: func(l *lease) { l.Abandon() },
	},
	"permits have one fence": {
		caught: "permits have fences of their own",
		fence:  func(l *lease) (uint64, bool) { return l.lastFence, true },
	},
	"permits draw fences from the service": {
		caught: "a lost permit draws no fence above those of later leases",
		fence: func(l *lease) (n uint64, ok bool) {
			locked(l.shard, func() {
				l.shard.fence++
				n = l.shard.fence
			})
			return n, true
		},
	},
}

func more(limit int) int {
	if limit > 0 {
		limit++
	}
	return limit
}

// endWithFirst ends the lease, and all others of its key, when it is not renewed.
func endWithFirst(l *lease) {
	s := l.shard
	if e := s.entries[l.key]; e != nil {
		drop(s, map[string]*entry{l.key: e}, gone)
	}
}

func enterAsBargingPermit(ctx context.Context, b *Backend, req distributed.Request) (l distributed.Lease, p distributed.Place, err error) {
	s := b.shardOf(req.Key)
	locked(s, func() {
		if e := s.entries[req.Key]; req.Limit > 0 && e != nil && e.admits(req.Mode, req.Limit) {
			fresh := s.grant(e, req.Instance, req.Mode, true, req.TTL, time.Now())
			fresh.keep()
			l = fresh
		}
	})
	if l != nil {
		return l, nil, nil
	}
	return b.Enter(ctx, req)
}
