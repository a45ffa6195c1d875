package memlock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// flaws are the mistakes a backend can make, each with the case that finds it.
var flaws = map[string]flaw{
	"nobody is excluded": {
		caught: "an exclusive lease excludes everybody else",
		ask:    func(r *distributed.Request) { r.Key += r.Instance },
	},
	"an instance gets its own lease again": {
		caught: "an instance is excluded by its own lease too",
		enter: func(ctx context.Context, b *Backend, req distributed.Request) (distributed.Lease, distributed.Place, error) {
			if l := holder(b, req.Key); l != nil && l.instance == req.Instance {
				return l, nil, nil
			}
			return b.Enter(ctx, req)
		},
	},
	"last come first served": {
		caught: "first come first served across instances",
		queued: func(p *place) { locked(p.shard, func() { toFront(p) }) },
	},
	"a release leaves the key free for a moment": {
		caught: "a hand-off leaves no gap for a newcomer",
		// It hides the queue while the lease is released, and grants to it later.
		release: func(l *lease) error {
			var waits *place
			locked(l.shard, func() {
				waits = l.entry.first
				l.entry.unlink(waits)
			})
			time.AfterFunc(time.Millisecond, func() {
				locked(l.shard, func() {
					e := l.shard.entry(l.key)
					e.push(waits)
					l.shard.advance(e)
				})
			})
			return l.Release(context.Background())
		},
	},
	"a refusal that tells no holder, and says so": {
		caught: "holders that the backend tells of a refusal are wanted, and know it once",
		enter: func(ctx context.Context, b *Backend, req distributed.Request) (distributed.Lease, distributed.Place, error) {
			if l := holder(b, req.Key); l != nil && req.NoWait {
				return nil, nil, distributed.HeldAndTold(l.instance)
			}
			return b.Enter(ctx, req)
		},
	},
	"no wait is queued": {
		caught: "no wait is never queued",
		ask:    func(r *distributed.Request) { r.NoWait = false },
	},
	"one more than allowed is queued": {
		caught: "a full queue takes no other",
		ask: func(r *distributed.Request) {
			if r.QueueMost > 0 {
				r.QueueMost++
			}
		},
	},
	"readers exclude each other": {
		caught: "readers hold together and keep writers out",
		ask:    func(r *distributed.Request) { r.Mode = distributed.Exclusive },
	},
	"a reader barges": {
		caught: "a reader does not pass a queued writer",
		enter:  enterAsBarging(func(r distributed.Request) bool { return r.Mode == distributed.Shared }),
	},
	"a writer that leaves forgets the readers behind": {
		caught: "readers enter beside others when the writer before them leaves",
		leave: func(p *place) error {
			return locked(p.shard, func() {
				if p.state == queued {
					p.entry.unlink(p)
					p.state = ended
				}
			})
		},
	},
	"a downgrade leaves the readers in the queue": {
		caught: "a downgraded lease goes on, and the readers at the head enter beside it",
		downgrade: func(l *lease) error {
			return locked(l.shard, func() { l.mode = distributed.Shared })
		},
	},
	"a downgrade releases the lease": {
		caught:    "a downgraded lease is renewed and lost like a shared one",
		downgrade: func(l *lease) error { return l.Release(context.Background()) },
	},
	"a downgraded prev is ignored": {
		caught: "a downgraded lease can be released as prev",
		ask: func(r *distributed.Request) {
			if l, ok := r.Prev.(*lease); ok && l.mode == distributed.Shared {
				r.Prev = nil
			}
		},
	},
	"a downgraded lease keeps its fences": {
		caught: "a downgraded lease has a fence above its own and below the next",
		downgrade: func(l *lease) error {
			last := l.fence
			defer func() { l.lastFence = last }()
			return l.Downgrade(context.Background())
		},
	},
	"a downgrade revives a lease": {
		caught: "a lease that was lost is not downgraded",
		downgrade: func(l *lease) error {
			if err := l.Downgrade(context.Background()); err != distributed.ErrLeaseLost {
				return err
			}
			return nil
		},
	},
	"a downgrade takes the lock for a lease that was released": {
		caught: "a downgrade and a release may overtake each other",
		downgrade: func(l *lease) error {
			return locked(l.shard, func() {
				if l.state == released {
					l.shard.grant(l.shard.entry(l.key), l.instance, distributed.Shared, false, l.ttl, time.Now())
				}
			})
		},
	},
	"fences start anew with each lease": {
		caught: "fences grow from lease to lease",
		fence:  func(l *lease) (uint64, bool) { return l.lastFence - l.fence, true },
	},
	"fences repeat within a lease": {
		caught: "fences grow within a lease and across refills",
		fence:  func(l *lease) (uint64, bool) { return l.lastFence, true },
	},
	"any lease draws fences from the service": {
		caught: "a lost lease draws no fence above its successor's",
		fence:  drawOfTheService,
	},
	"a release does not ask whose lease it is": {
		caught:  "a second release is answered nil and touches nobody",
		release: releaseAnybody,
	},
	"a stale release does not ask whose lease it is": {
		caught:  "a release of an expired lease touches nobody",
		release: releaseAnybody,
	},
	"a release needs time": {
		caught:  "a release whose caller has no time left goes on",
		release: func(l *lease) error { return context.Canceled },
	},
	"a renewal makes a released lease anew": {
		caught: "a release during a renewal is final",
		release: func(l *lease) error {
			err := l.Release(context.Background())
			time.AfterFunc(time.Millisecond, func() {
				locked(l.shard, func() {
					if e := l.shard.entry(l.key); len(e.owners) == 0 {
						l.shard.grant(e, l.instance, l.mode, l.permit, l.ttl, time.Now())
					}
				})
			})
			return err
		},
	},
	"prev is ignored": {
		caught: "prev is released in the same exchange",
		ask:    func(r *distributed.Request) { r.Prev = nil },
	},
	"prev is known only by itself": {
		caught: "prev is found inside a decorator",
		askWrapped: func(r *distributed.Request) {
			if _, ok := r.Prev.(*wrongLease); !ok {
				r.Prev = nil
			}
		},
	},
	"prev is kept": {
		caught: "prev does not pass the queue",
		enter: func(ctx context.Context, b *Backend, req distributed.Request) (distributed.Lease, distributed.Place, error) {
			if l, ok := req.Prev.(*lease); ok && l == holder(b, req.Key) {
				return l, nil, nil
			}
			return b.Enter(ctx, req)
		},
	},
	"prev is ignored without wait": {
		caught: "prev is released also when NoWait is refused",
		ask: func(r *distributed.Request) {
			if r.NoWait && r.Prev.(*lease).Contended() {
				r.Prev = nil
			}
		},
	},
	"prev is released whatever its instance": {
		caught: "prev that was lost touches nobody",
		ask: func(r *distributed.Request) {
			if l, ok := r.Prev.(*lease); ok {
				releaseAnybody(l)
			}
		},
	},
	"a lost lease is reported as released": {
		caught: "prev that was taken away is not reported as released",
		release: func(l *lease) error {
			_ = l.Release(context.Background())
			return nil
		},
	},
	"leaving loses a grant": {
		caught: "leaving releases an unread grant",
		leave: func(p *place) error {
			if len(p.granted) > 0 {
				<-p.granted
				return nil
			}
			return p.Leave(context.Background())
		},
	},
	"leaving releases any owner of the key": {
		caught: "leaving twice is fine",
		leave: func(p *place) error {
			if p.state == ended {
				drop(p.shard, p.shard.entries, gone)
			}
			return p.Leave(context.Background())
		},
	},
	"leaving takes a received lease away": {
		caught: "leaving after the lease was received keeps the lease",
		leave: func(p *place) error {
			if p.state == delivered {
				return p.lease.Release(context.Background())
			}
			return p.Leave(context.Background())
		},
	},
	"contended is for good": {
		caught: "a holder learns that nobody waits any more",
		contended: func(l *lease) bool {
			if l.Contended() {
				contendedOnce.Store(l, true)
			}
			_, once := contendedOnce.Load(l)
			return once
		},
	},
	"a loss is reported late": {
		caught: "a holder learns that its lease was taken away",
		lost: func(*lease) <-chan struct{} {
			late := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(late) })
			return late
		},
	},
	"leases are not renewed": {
		caught:  "a held lease outlives its TTL",
		entered: func(l *lease) { l.Abandon() },
	},
	"leases last for T at once": {
		caught:  "a fresh lease lasts for the claim window, then for T",
		entered: func(l *lease) { l.Renewed(distributed.Validity(l.granted, l.ttl)) },
	},
	"unread grants are claimed": {
		caught: "a grant that nobody receives delays others by the claim window",
		release: func(l *lease) error {
			err := l.Release(context.Background())
			locked(l.shard, func() {
				for _, next := range l.shard.entries[l.key].owners {
					next.place = nil // so it does not know that its grant is unread
				}
			})
			return err
		},
	},
	"leases never expire": {
		caught:  "an abandoned lease expires, and not before Until",
		entered: func(l *lease) { l.shard.expiry.Remove(&l.item) },
	},
	"leases expire early": {
		caught: "an abandoned lease expires, and not before Until",
		entered: func(l *lease) {
			time.AfterFunc(l.ttl/4, func() { drop(l.shard, l.shard.entries, gone) })
		},
	},
	"a release without network is forgotten": {
		caught: "a release without network is carried out later",
		release: func(l *lease) error {
			l.Finish()
			err := l.shard.backend.reachable()
			if err == nil {
				locked(l.shard, func() { err = l.shard.release(l) })
			}
			return err
		},
	},
	"a dead context still takes the lock": {
		caught: "an enter with a dead context leaves nothing",
		enter: func(ctx context.Context, b *Backend, req distributed.Request) (distributed.Lease, distributed.Place, error) {
			l, p, err := b.Enter(context.WithoutCancel(ctx), req)
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			return l, p, err
		},
	},
	"keys are cut at braces": {
		caught: "any two valid keys are different locks",
		ask:    func(r *distributed.Request) { r.Key, _, _ = strings.Cut(r.Key, "{") },
	},
	"closing forgets the queue": {
		caught: "Close ends places",
		close: func(b *Backend) error {
			b.closed.Store(true)
			return nil
		},
	},
}

// contendedOnce has the leases that were contended once.
var contendedOnce sync.Map

// locked runs fn with the shard's mu held.
func locked(s *shard, fn func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	return nil
}

func holder(b *Backend, key string) (l *lease) {
	s := b.shardOf(key)
	locked(s, func() {
		if e := s.entries[key]; e != nil {
			l = e.owners[0]
		}
	})
	return l
}

// drop takes the leases of these entries away.
func drop(s *shard, entries map[string]*entry, why leaseState) {
	locked(s, func() {
		for _, e := range entries {
			for len(e.owners) > 0 {
				s.drop(e.owners[0], why)
			}
			s.advance(e)
			s.tidy(e)
		}
	})
}

func toFront(p *place) {
	e := p.entry
	e.unlink(p)
	if p.entry, p.next = e, e.first; e.first == nil {
		e.last = p
	} else {
		e.first.prev = p
	}
	e.first = p
}

// dropAll takes all leases of the key away.
func dropAll(l *lease) {
	if e := l.shard.entries[l.key]; e != nil {
		drop(l.shard, map[string]*entry{l.key: e}, gone)
	}
}

func releaseAnybody(l *lease) error {
	dropAll(l)
	return l.Release(context.Background())
}

func drawOfTheService(l *lease) (n uint64, ok bool) {
	locked(l.shard, func() {
		l.shard.fence++
		n = l.shard.fence
	})
	return n, true
}

// enterAsBarging lets some requests in beside the owners, whoever waits.
func enterAsBarging(
	barges func(distributed.Request) bool,
) func(context.Context, *Backend, distributed.Request) (distributed.Lease, distributed.Place, error) {
	return func(ctx context.Context, b *Backend, req distributed.Request) (l distributed.Lease, p distributed.Place, err error) {
		s := b.shardOf(req.Key)
		locked(s, func() {
			if e := s.entries[req.Key]; barges(req) && e != nil && e.admits(req.Mode, req.Limit) {
				fresh := s.grant(e, req.Instance, req.Mode, req.Limit > 0, req.TTL, time.Now())
				fresh.keep()
				l = fresh
			}
		})
		if l != nil {
			return l, nil, nil
		}
		return b.Enter(ctx, req)
	}
}
