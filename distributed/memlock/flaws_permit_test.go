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
		ask:    oneMore,
	},
	"a permit barges": {
		caught: "the head that waits for a permit holds up all behind it",
		enter:  enterAsBarging(func(r distributed.Request) bool { return r.Limit > 0 }),
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
		ask:    oneMore, // for the one reader there
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
		entered: func(l *lease) { time.AfterFunc(l.ttl/2, func() { dropAll(l) }) },
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
		fence:  drawOfTheService,
	},
}

func oneMore(r *distributed.Request) {
	if r.Limit > 0 {
		r.Limit++
	}
}
