package sqllock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

var _ driver.Transferer[ours] = half{}

// detachedProcess begins the tokens of detached leases. No process has a name of eight letters, so no notification arrives.
const detachedProcess = "detached."

// Detached implements driver.Transferer. The token is a hash of the id, which may be longer than its column. No look and no renewal
// knows of the attempt, and it passes no gate. It may be the first that this process asks (rule D12).
func (d half) Detached(ctx context.Context, a *attempt, id string) error {
	w, sum := &a.Wire, sha256.Sum256([]byte(id))
	a.Lane, w.token, w.holder = d.lane, detachedProcess+hex.EncodeToString(sum[:16]), a.Instance
	w.name, _ = storedName(a.Key)
	w.ttl, w.unknown = a.TTL, true
	if d.sessions.fit.Load() {
		return nil
	}
	return d.ask(ctx, "find a detached lease", func(context.Context) error { return nil })
}

// Transfer implements driver.Transferer, in one transaction (rule D15).
func (d half) Transfer(ctx context.Context, from, to *attempt) (driver.Standing, error) {
	defer d.leave(to)
	what, lasts := "adopt", to.Window
	if from.Lease() != nil {
		what, lasts = "detach", to.Lasts
	}
	to.Wire.unknown = true
	sent := time.Now()
	got, err := d.changeHeld(ctx, from, what, func(s *state) answer { return s.transfer(handleOf(from), &to.Wire.claim, lasts) })
	if err != nil {
		return driver.Standing{}, err
	}
	got.sent = sent
	return to.Wire.got(got), nil
}

// Detach implements distributed.Transferer.
func (b *Backend) Detach(ctx context.Context, l distributed.Lease, id string, lasts time.Duration) error {
	return b.client.Detach(ctx, l, id, lasts)
}

// Adopt implements distributed.Transferer.
func (b *Backend) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	return b.client.Adopt(ctx, req, id)
}

// Discard implements distributed.Transferer.
func (b *Backend) Discard(ctx context.Context, req distributed.Request, id string) error {
	return b.client.Discard(ctx, req, id)
}
