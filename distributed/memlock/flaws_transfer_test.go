package memlock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// transferFlaws are those of leases that are detached, adopted and discarded.
var transferFlaws = map[string]flaw{
	"detach releases the lock": {
		caught: "a detached lease keeps the lock until it is adopted",
		detach: func(_ *Backend, l *lease, _ string, _ time.Duration) error { return l.Release(context.Background()) },
	},
	"the lease that was detached can be released": {
		caught:  "a detached lease keeps the lock until it is adopted",
		release: func(l *lease) error { return l.shard.backend.discardAny(l.key) },
	},
	"the fences of an adopted lease begin anew": {
		caught: "a detached lease keeps the lock until it is adopted",
		adopted: func(l *lease) {
			l.fence, l.lastFence = 0, 1024
		},
	},
	"an id adopts twice": {
		caught: "a detached lease is adopted once",
		adopt: func(b *Backend, req distributed.Request, id string) (distributed.Lease, error) {
			l, err := b.Adopt(context.Background(), req, id)
			if now := holder(b, req.Key); errors.Is(err, distributed.ErrLeaseLost) && now != nil {
				return now, nil
			}
			return l, err
		},
	},
	"the lock can be adopted a single time": {
		caught:  "an adopted lease is detached and adopted again",
		adopted: func(l *lease) { l.mode = distributed.Shared },
	},
	"a detached lease lasts as long as its instance's": {
		caught: "a detached lease outlasts the TTL of its instance",
		detach: func(b *Backend, l *lease, id string, lasts time.Duration) error {
			return b.Detach(context.Background(), l, id, min(lasts, l.ttl))
		},
	},
	"an adopted lease is not renewed": {
		caught:  "a detached lease outlasts the TTL of its instance",
		adopted: func(l *lease) { l.Abandon() },
	},
	"a detached lease is for ever": {
		caught: "a detached lease that nobody adopts expires",
		detach: func(b *Backend, l *lease, id string, _ time.Duration) error {
			return b.Detach(context.Background(), l, id, time.Hour)
		},
	},
	"a detached lease expires at once": {
		caught: "a detached lease that nobody adopts expires",
		detach: func(b *Backend, l *lease, id string, _ time.Duration) error {
			return b.Detach(context.Background(), l, id, distributed.MinTTL)
		},
	},
	"discard does nothing": {
		caught:  "a detached lease is discarded",
		discard: func(*Backend, distributed.Request, string) error { return nil },
	},
	"any id adopts": {
		caught: "an unknown id adopts and discards nothing",
		adopt: func(b *Backend, req distributed.Request, _ string) (distributed.Lease, error) {
			if err := b.discardAny(req.Key); err != nil {
				return nil, err
			}
			l, _, err := b.Enter(context.Background(), req)
			return l, err
		},
	},
	"detach of a lost lease succeeds": {
		caught: "a lease that is lost cannot be detached",
		detach: func(b *Backend, l *lease, id string, lasts time.Duration) error {
			if err := b.Detach(context.Background(), l, id, lasts); !errors.Is(err, distributed.ErrLeaseLost) {
				return err
			}
			return nil
		},
	},
	"a wrong argument ends the lease": {
		caught: "what cannot be detached stays held",
		detach: func(b *Backend, l *lease, id string, lasts time.Duration) error {
			err := b.Detach(context.Background(), l, id, lasts)
			_ = l.Release(context.Background())
			return err
		},
	},
	"inspect names the former holder": {
		caught: "inspect shows a detached lease, and break ends it",
		found:  func(i *distributed.Inspection) { i.Holders[0].Instance = "former" },
	},
	"an instance has the lease that it has detached": {
		caught: "an instance waits behind the lease that it has detached",
		enter: func(ctx context.Context, b *Backend, req distributed.Request) (distributed.Lease, distributed.Place, error) {
			_ = b.discardAny(req.Key)
			return b.Enter(ctx, req)
		},
	},
	"a detach without an answer leaves the lock taken": {
		caught: "a detach without an answer releases the lock",
		detach: func(b *Backend, l *lease, id string, lasts time.Duration) error {
			err := b.Detach(context.Background(), l, id, lasts)
			if errors.Is(err, distributed.ErrUnavailable) {
				locked(l.shard, func() {
					l.releasing, l.expires = false, time.Now().Add(lasts)
					l.shard.expiry.Put(&l.item, l.expires)
				})
			}
			return err
		},
	},
	"a closed backend goes on": {
		caught:  "after Close nothing is detached or adopted",
		discard: func(*Backend, distributed.Request, string) error { return distributed.ErrLeaseLost },
	},
}

// discardAny releases the lease of a key if it is detached.
func (b *Backend) discardAny(key string) error {
	l := holder(b, key)
	if l == nil || !(distributed.Holder{Instance: l.instance}).Detached() {
		return distributed.ErrLeaseLost
	}
	return l.release(true)
}
