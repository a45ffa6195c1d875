package memlock

import (
	"context"

	"github.com/wllock/wllock/distributed"
)

// inspectFlaws are those of what a Backend tells, and of what it ends by force.
var inspectFlaws = map[string]flaw{
	"each run succeeds": {
		caught: "the latest run of a key is kept, and the latest that has succeeded",
		record: func(r *distributed.Run) { r.Result = distributed.RunOK },
	},
	"keys of runs that begin alike are one": {
		caught: "runs of many keys are kept of those that were recorded last",
		record: func(r *distributed.Run) { r.Key = r.Key[:len(r.Key)-1] },
	},
	"a run is mended": {
		caught: "a run that makes no sense is an error",
		record: func(r *distributed.Run) {
			*r = distributed.Run{Key: "s:n:k", Instance: "i", Began: r.Began.Add(1), Result: distributed.RunOK}
		},
	},
	"another holder is named": {
		caught: "inspect names the holder and the queue in order",
		found:  func(i *distributed.Inspection) { i.Holders[0].Instance = "another" },
	},
	"the queue is named the wrong way round": {
		caught: "inspect names the holder and the queue in order",
		found:  func(i *distributed.Inspection) { w := i.Waiters; w[0], w[len(w)-1] = w[len(w)-1], w[0] },
	},
	"one reader is left out": {
		caught: "inspect names the readers",
		found:  func(i *distributed.Inspection) { i.Holders = i.Holders[1:] },
	},
	"a holder of a free key": {
		caught: "inspect of a free key finds nothing and leaves nothing",
		found:  func(i *distributed.Inspection) { i.Holders = []distributed.Holder{{Instance: "ghost"}} },
	},
	"a page has a key twice instead of another": {
		caught: "list finds every key of a prefix, page by page",
		found:  func(i *distributed.Inspection) { i.Key += "x" },
	},
	"break ends whatever lease there is": {
		caught: "break ends what was found, and no later lease",
		breaks: func(b *Backend, i distributed.Inspection) distributed.Inspection {
			now, _ := b.Inspect(context.Background(), i.Key)
			return now
		},
	},
	"leases are counted anew once the lock was free": {
		caught:  "break ends no later lease after the lock was forgotten",
		entered: func(l *lease) { l.id = 1 },
	},
	"break of a free lock succeeds": {
		caught: "break of a free lock is refused",
		breaks: func(b *Backend, i distributed.Inspection) distributed.Inspection {
			l, _, _ := b.Enter(context.Background(), distributed.Request{Key: i.Key, Instance: "x", TTL: distributed.MinTTL})
			l.Abandon()
			now, _ := b.Inspect(context.Background(), i.Key)
			return now
		},
	},
	"break lets the queue wait": {
		caught: "break ends a lease and grants the lock to the next",
		breaks: func(b *Backend, i distributed.Inspection) distributed.Inspection {
			s := b.shardOf(i.Key)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.entries[i.Key].last.mode = distributed.Exclusive
			s.entries[i.Key].first = s.entries[i.Key].last // the head is forgotten
			return i
		},
	},
	"a broken holder has fences above the next one's": {
		caught:  "break ends a lease and grants the lock to the next",
		entered: func(l *lease) { l.fence += 1 << 20; l.lastFence += 1 << 21 },
	},
}
