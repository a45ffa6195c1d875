package driver

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Transferer is a Driver whose exclusive leases can be detached: see distributed.Transferer. A detached lease is that of an attempt that no
// process makes. Each process that has its id makes the same attempt for it.
type Transferer[W any] interface {
	Driver[W]
	// Detached is Prepare for the attempt of the detached lease with that id. Its Lasts are how long that lasts, for Transfer. All that the
	// service keeps of it follows from its Key and the id, and names distributed.DetachedName(id) in place of an instance. Drop releases it, after a Transfer to
	// it that failed.
	Detached(ctx context.Context, d *Attempt[W], id string) error
	// Transfer gives the lease of from, which is exclusive, to the attempt to, with new fences: one of the two is Detached. To that it lasts for
	// Lasts, and to another for Window. Like Enter it returns by itself, and may repeat what was not answered: a Transfer that was carried
	// out is answered again. ErrLeaseLost: neither of them has it. After another error the Backend drops them: those of a Detach, from
	// first, and of an Adopt to alone.
	Transfer(ctx context.Context, from, to *Attempt[W]) (Standing, error)
}

// transferer returns the driver, if it is one.
func (b *Backend[W]) transferer() (Transferer[W], error) {
	if t, ok := b.driver.(Transferer[W]); ok {
		return t, nil
	}
	return nil, keyless.Errorf("%s: detached leases: %w by this backend", b.set.Name, errors.ErrUnsupported)
}

// detached makes the attempt of a detached lease.
func (b *Backend[W]) detached(ctx context.Context, t Transferer[W], key, id string, lasts time.Duration) (*Attempt[W], error) {
	d := b.newAttempt(distributed.Request{Key: key, Instance: distributed.DetachedName(id), TTL: lasts})
	d.state, d.quitted = ending, true
	return d, t.Detached(ctx, d, id)
}

// Detach implements distributed.Transferer. To its own attempt the lease is adopted meanwhile, as by an Enter that names it as Prev: exactly one
// of Transfer and Drop ends it (rule C3).
func (b *Backend[W]) Detach(ctx context.Context, of distributed.Lease, id string, lasts time.Duration) error {
	t, err := b.transferer()
	if err != nil {
		return err
	}
	l, ok := distributed.As[*lease[W]](of)
	if !ok || l.a.b != b {
		return keyless.Errorf("%s: detach: want a lease of this backend", b.set.Name)
	}
	a := l.a
	if err := parts.CheckDetach(b.set.Name, a.Shares(), id, lasts, 0); err != nil {
		return err
	}
	if !b.Begin() {
		return distributed.ErrClosed
	}
	defer b.Done()
	d, err := b.detached(ctx, t, a.Key, id, lasts)
	if err != nil {
		return b.OrClosed(err) // nothing has been done yet
	}
	p := b.adopt(distributed.Request{Key: a.Key, Instance: a.Instance, Prev: l})
	if !p.mine {
		return distributed.ErrLeaseLost // or it was released
	}
	_, err = t.Transfer(ctx, a, d)
	switch {
	case err == nil:
		p.Settle(Removed)
	case errors.Is(err, distributed.ErrLeaseLost):
		p.Settle(Lost)
	default: // first the lease: a Transfer that comes late finds none
		p.GiveUp()
		b.Go(func() {
			_ = a.wait(a.Lane.ctx, "release", a.patience())
			d.drop()
		})
	}
	return b.OrClosed(err)
}

// Adopt implements distributed.Transferer.
func (b *Backend[W]) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	t, err := b.transferer()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), parts.CheckAdopt(b.set.Name, &req, id, 0)); err != nil {
		return nil, err
	}
	a, err := b.begin(ctx, b.newAttempt(req))
	if err != nil {
		return nil, b.OrClosed(err)
	}
	defer a.Lane.asked()
	var s Standing
	d, err := b.detached(ctx, t, req.Key, id, req.TTL)
	if err == nil {
		s, err = b.claimed(ctx, a, "adopt", false, func() (Standing, error) { return t.Transfer(ctx, d, a) })
	}
	if errors.Is(err, distributed.ErrLeaseLost) { // nothing of the attempt is left
		_, _, _ = a.entered(Standing{Kind: Refused}, nil)
		return nil, err
	}
	l, _, err := a.entered(s, err)
	return l, b.OrClosed(err)
}

// Discard implements distributed.Transferer.
func (b *Backend[W]) Discard(ctx context.Context, req distributed.Request, id string) error {
	l, err := b.Adopt(ctx, req, id)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}
