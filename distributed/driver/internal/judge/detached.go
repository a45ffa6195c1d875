package judge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
)

// transferer is a Process whose leases can be detached.
type transferer interface {
	Detach(ctx context.Context, l distributed.Lease, id string, lasts time.Duration) error
	Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error)
	// HasDetached reports that the service has the detached lease of that id, and not because of a request that came late, or since nothing of
	// the process arrives.
	HasDetached(id string) bool
}

// detached is a lease that a user has detached. Its fields are guarded by World.mu.
type detached struct {
	key, id string
	until   time.Time
	tries   int               // to adopt it
	busy    int               // of these, under way
	doubted bool              // one that was not answered may have adopted it
	adopter distributed.Lease // nil: none has
}

// isKept reports that nobody has adopted it, or may have.
func (d *detached) isKept() bool { return d.adopter == nil && d.busy == 0 && !d.doubted }

// anyDetached returns a detached lease that may be adopted, or nil.
func (w *World) anyDetached(rnd *rand.Rand) *detached {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.detached = slices.DeleteFunc(w.detached, func(d *detached) bool { return time.Now().After(d.until.Add(time.Minute)) })
	if len(w.detached) == 0 {
		return nil
	}
	return w.detached[rnd.IntN(len(w.detached))]
}

// detach detaches a lease, under which nobody works any more. It reports false if that cannot be.
func (u *User) detach(key string, l distributed.Lease) bool {
	t, ok := u.p.(transferer)
	if !ok {
		return false
	}
	d := &detached{key: key, id: fmt.Sprintf("%020d", u.rnd.Uint64())}
	lasts, sent := distributed.MinTTL+u.upTo(4*u.ttl), time.Now()
	d.until = sent.Add(lasts)
	ctx, cancel := context.WithTimeout(context.Background(), u.upTo(2*u.ttl))
	defer cancel()
	switch err := t.Detach(ctx, l, d.id, lasts); {
	case errors.Is(err, errors.ErrUnsupported):
		return false
	case err == nil:
		u.w.mu.Lock()
		u.w.detached = append(u.w.detached, d)
		u.w.counts["detached"]++
		u.w.mu.Unlock()
	case errors.Is(err, distributed.ErrLeaseLost) && !isLost(l) && !u.p.Closed() && !u.p.MayBeLost(l):
		u.w.Failf("a lease was called lost by Detach, and was not")
	default:
		u.w.Count("not detached")
		time.AfterFunc(5*u.ttl/2, func() { // silence lasts for two TTLs at most
			if t.HasDetached(d.id) && !u.p.Closed() {
				u.w.Failf("a Detach that has failed has left the lock taken")
			}
		})
	}
	if u.p.Has(l) && !u.p.Closed() && ctx.Err() == nil && time.Now().Before(d.until) && l.Healthy() {
		u.w.Failf("a lease that was detached is healthy")
	}
	_ = l.Release(context.Background())
	return true
}

// adopt adopts a detached lease, perhaps one that another user adopts.
func (u *User) adopt(d *detached) {
	u.w.mu.Lock()
	d.tries++
	d.busy++
	u.w.mu.Unlock()
	req := distributed.Request{Key: d.key, Instance: u.name, TTL: u.ttl}
	ctx, cancel := context.WithTimeout(context.Background(), u.upTo(2*u.ttl))
	l, err := u.p.(transferer).Adopt(ctx, req, d.id)
	cancel()
	u.w.mu.Lock()
	d.busy--
	switch {
	case err == nil && d.adopter != nil:
		u.w.found = append(u.w.found, "a detached lease was adopted twice")
	case err == nil:
		d.adopter = l
		u.w.counts["adopted"]++
	case errors.Is(err, distributed.ErrLeaseLost):
		if d.tries == 1 && time.Now().Before(d.until) {
			u.w.found = append(u.w.found, "a detached lease is not there, which nobody has adopted")
		}
	default:
		d.doubted = true
	}
	u.w.mu.Unlock()
	if err == nil {
		u.fresh(l)
		u.hold(req, l)
	}
}
