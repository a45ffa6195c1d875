package simulated

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

// memoryView is the memlock of one process: each request passes its network. What a request has brought whose answer its sender does not get is
// removed within a claim window, as the contract of distributed.Backend has it.
type memoryView struct {
	*memlock.Backend
	*network

	leases map[distributed.Lease]bool // guarded by network.mu; those that memlock renews for this process
}

var (
	_ distributed.Observable  = (*memoryView)(nil)
	_ distributed.Transferer  = (*memoryView)(nil)
	_ distributed.TTLRegistry = (*memoryView)(nil)
)

// Observe implements distributed.Observable.
func (v *memoryView) Observe(f func(distributed.Exchange)) (stop func()) { return v.network.Observe(f) }

// Close implements distributed.Backend. The service goes on for others.
func (v *memoryView) Close() error { return nil }

// Echo implements distributed.Observable.
func (v *memoryView) Echo(ctx context.Context) error {
	return v.exchange(ctx, "echo", func(bool) error { return v.Backend.Echo(context.Background()) })
}

// Ping implements distributed.Backend.
func (v *memoryView) Ping(ctx context.Context) error { return v.Echo(ctx) }

// LongestTTL implements distributed.TTLRegistry.
func (v *memoryView) LongestTTL(ctx context.Context, system string, own time.Duration) (longest time.Duration, err error) {
	err = v.exchange(ctx, "longest TTL", func(once bool) error {
		d, err := v.Backend.LongestTTL(context.Background(), system, own)
		if once {
			longest = d
		}
		return err
	})
	return longest, err
}

// Enter implements distributed.Backend. memlock cannot tell that a request comes twice, so none does.
func (v *memoryView) Enter(ctx context.Context, req distributed.Request) (lease distributed.Lease, place distributed.Place, err error) {
	kind := "enter"
	if req.NoWait {
		kind = "enter without wait"
	}
	if v.flaw == flawExcludes {
		req.Key += req.Instance
	}
	if v.flaw == flawPermits && req.Limit > 0 {
		req.Limit++
	}
	if prev, ok := distributed.As[*leaseAt](req.Prev); ok {
		v.with(func() { delete(v.leases, prev.inner) })
	}
	err = v.exchange(ctx, kind, func(once bool) error {
		l, p, err := v.Backend.Enter(context.Background(), req)
		if once {
			lease, place = l, p
		} else {
			v.undo(l, p)
		}
		return err
	})
	if err != nil {
		v.undo(lease, place)
		if errors.Is(err, distributed.ErrHeld) {
			v.seen.note(kind + ": held")
		}
		return nil, nil, err
	}
	if lease != nil {
		v.seen.note(kind + ": granted")
		return v.granted(lease), nil, nil
	}
	v.seen.note(kind + ": queued")
	return nil, wrap.Place(&placeAt{place, v, req.TTL}, v.delivered), nil
}

// undo removes what a request has brought that is not answered.
func (v *memoryView) undo(l distributed.Lease, p distributed.Place) {
	if l == nil && p == nil || v.flaw == flawGhost {
		return
	}
	if l != nil {
		l.Abandon() // nobody renews it
	}
	v.late.Go(func() {
		time.Sleep(v.below(distributed.ClaimWindow(leaseTTL) / 2))
		if p != nil {
			_ = p.Leave(context.Background())
		} else {
			_ = l.Release(context.Background())
		}
	})
}

// delivered is the grant of a place, when it comes.
func (v *memoryView) delivered(l distributed.Lease) distributed.Lease {
	time.Sleep(v.below(longestTrip))
	when := "in time"
	if v.isBad() && v.rnd.IntN(oneIn) == 0 { // the service has said it in vain, and says it again
		time.Sleep(v.below(distributed.ClaimWindow(leaseTTL) / 2))
		when = "late"
	}
	v.seen.note("grant: " + when)
	if v.isCut() {
		l.Abandon()
	}
	v.wake()
	return v.granted(l)
}

// granted is a lease as the process has it.
func (v *memoryView) granted(l distributed.Lease) distributed.Lease {
	v.with(func() {
		if v.leases == nil {
			v.leases = map[distributed.Lease]bool{}
		}
		v.leases[l] = true
	})
	if v.isCut() {
		l.Abandon()
	}
	if v.flaw == flawExpires {
		v.after(v.below(leaseTTL), func(bool) error {
			v.Backend.Expire(fullName("a"))
			return nil
		})
	}
	at := &leaseAt{inner: l, v: v}
	at.Lease = wrap.Releasing(l, at.release)
	return at
}

// loseRenewals abandons the leases of the process, whose renewals do not arrive.
func (v *memoryView) loseRenewals() {
	var all []distributed.Lease
	v.with(func() {
		for l := range v.leases {
			all = append(all, l)
		}
	})
	for _, l := range all {
		l.Abandon()
	}
}

// leaseAt is a lease whose requests pass the network.
type leaseAt struct {
	distributed.Lease // ends it by release
	inner             distributed.Lease
	v                 *memoryView
	first, last       uint64 // fences
	drawn             int    // since the latest refill
}

// Unwrap is for distributed.As.
func (l *leaseAt) Unwrap() distributed.Lease { return l.inner }

// finisher is the client's side of a lease, which ends before the request to release it is sent.
type finisher interface{ Finish() (held bool) }

func (l *leaseAt) release(ctx context.Context) error {
	l.v.with(func() { delete(l.v.leases, l.inner) })
	held := l.inner.(finisher).Finish()
	do := func(bool) error {
		if l.v.flaw == flawRelease {
			return nil
		}
		return l.inner.Release(context.Background())
	}
	err := l.v.exchange(ctx, "release", do)
	if errors.Is(err, distributed.ErrUnavailable) {
		l.v.repeat("release", l.Until(), do)
	}
	if !held {
		return distributed.ErrLeaseLost
	}
	return err
}

// reserve is how many fences a lease has until it is refilled. Those of memlock would last for a whole schedule.
const reserve = 2

// NextFence implements distributed.Lease.
func (l *leaseAt) NextFence() (f uint64, ok bool) {
	l.v.with(func() {
		if l.drawn >= reserve {
			return
		}
		if f, ok = l.Lease.NextFence(); f != l.last { // a shared lease has one
			l.drawn++
		}
		l.last = f
		if l.first == 0 {
			l.first = f
		}
		if l.v.flaw == flawFences {
			f = l.first
		}
	})
	return f, ok
}

// Refill implements distributed.Lease.
func (l *leaseAt) Refill(ctx context.Context) error {
	err := l.v.exchange(ctx, "refill", func(bool) error { return l.inner.Refill(context.Background()) })
	if err == nil {
		l.v.with(func() { l.drawn = 0 })
	}
	return err
}

// Downgrade implements distributed.Lease.
func (l *leaseAt) Downgrade(ctx context.Context) error {
	err := l.v.exchange(ctx, "downgrade", func(bool) error { return l.inner.Downgrade(context.Background()) })
	if err == nil {
		l.v.with(func() { l.drawn = 0 }) // its one fence is new
		l.v.seen.note("state: downgraded")
	}
	return err
}

// placeAt is a place whose leaving passes the network.
type placeAt struct {
	distributed.Place
	v   *memoryView
	ttl time.Duration
}

// Leave implements distributed.Place.
func (p *placeAt) Leave(ctx context.Context) error {
	do := func(bool) error {
		if p.v.flaw == flawLeave {
			return nil
		}
		return p.Place.Leave(context.Background())
	}
	err := p.v.exchange(ctx, "leave", do)
	if errors.Is(err, distributed.ErrUnavailable) {
		p.v.repeat("leave", time.Now().Add(p.ttl), do)
	}
	return err
}

// Detach implements distributed.Transferer.
func (v *memoryView) Detach(ctx context.Context, of distributed.Lease, id string, lasts time.Duration) error {
	l, ok := distributed.As[*leaseAt](of)
	if !ok {
		return errors.New("simulated: detach: want a lease of this process")
	}
	v.with(func() { delete(v.leases, l.inner) })
	err := v.exchange(ctx, "detach", func(bool) error { return v.Backend.Detach(context.Background(), l.inner, id, lasts) })
	if errors.Is(err, distributed.ErrUnavailable) {
		_ = l.inner.(finisher).Finish()
		v.repeat("release", l.Until(), func(bool) error { return l.inner.Release(context.Background()) })
	}
	return err
}

// Adopt implements distributed.Transferer.
func (v *memoryView) Adopt(ctx context.Context, req distributed.Request, id string) (lease distributed.Lease, err error) {
	err = v.exchange(ctx, "adopt", func(once bool) error {
		l, err := v.Backend.Adopt(context.Background(), req, id)
		if once {
			lease = l
		} else {
			v.undo(l, nil)
		}
		return err
	})
	if err != nil {
		v.undo(lease, nil)
		return nil, err
	}
	return v.granted(lease), nil
}

// Discard implements distributed.Transferer.
func (v *memoryView) Discard(ctx context.Context, req distributed.Request, id string) error {
	return v.exchange(ctx, "discard", func(bool) error { return v.Backend.Discard(context.Background(), req, id) })
}
