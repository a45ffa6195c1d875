package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/keyless"
)

var _ driver.Transferer[claim] = half{}

// detachedProcess stands for a process in the token of a detached lease: no process hears of it.
const detachedProcess = "detached"

// Detached implements driver.Transferer.
func (d half) Detached(_ context.Context, a *attempt, _ string) error {
	if a.Lasts > maxTTL {
		return keyless.Errorf("redislock: detach for %v: want at most %v", a.Lasts, maxTTL)
	}
	a.Window = a.Lasts
	d.identify(a, detachedProcess, identity.Attempt{Number: 1}, instanceName(a.Instance))
	return nil
}

// Transfer implements driver.Transferer (rule R20).
func (d half) Transfer(ctx context.Context, from, to *attempt) (driver.Standing, error) {
	budget := to.Window
	to.Wire.after.Store(from.Wire.last.Load())
	c := to.Wire.transfer(&from.Wire.wireAttempt)
	if l := from.Lease(); l != nil { // else it is detached
		budget = time.Until(l.Until())
		c.Acked = d.s.acks.Replicas > 0 // a failover that loses it frees the lock when the lease of from would have ended
	}
	sent, err := d.s.ask(ctx, c, min(from.TTL, to.TTL), budget)
	if err != nil {
		return driver.Standing{}, err
	}
	switch r := readStanding(c.Reply, sent); r.kind {
	case hasLease:
		return d.granted(to, r.grant), nil
	case isNotHeld:
		return driver.Standing{}, distributed.ErrLeaseLost
	default:
		return driver.Standing{}, conn.Unavailable("transfer", conn.Refusal(fmt.Errorf("the server answers %q", r.kind)))
	}
}

// transfer gives this attempt the lease of another.
func (w *wireAttempt) transfer(from *wireAttempt) *conn.Call {
	seen := w.space.seen.Load()
	return conn.NewCall(transferScript, append(w.keys[:], from.keys[doneKey]), w.token, w.attempt, modeExclusive, w.fixed.fresh, w.fixed.keep,
		w.fixed.settings, fenceArg(&seen), from.token, w.fixed.markArg, from.fixed.past)
}

// Detach implements distributed.Transferer.
func (b *Backend) Detach(ctx context.Context, l distributed.Lease, id string, lasts time.Duration) error {
	return b.client.Detach(ctx, l, id, lasts)
}

// Adopt implements distributed.Transferer.
func (b *Backend) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	return b.client.Adopt(ctx, b.keyed(req), id)
}

// Discard implements distributed.Transferer.
func (b *Backend) Discard(ctx context.Context, req distributed.Request, id string) error {
	return b.client.Discard(ctx, b.keyed(req), id)
}
