package register

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

var _ driver.Transferer[wire] = half{}

// Detached implements driver.Transferer. Its claim has a beat, so it lasts for its TTL.
func (d half) Detached(ctx context.Context, a *attempt, id string) error {
	err := d.Prepare(ctx, a)
	a.Wire.ID, a.Wire.Beat = id, 1
	return err
}

// Transfer implements driver.Transferer: one claim takes the place of the other among the owners.
func (d half) Transfer(ctx context.Context, from, to *attempt) (s driver.Standing, err error) {
	start, unsure := time.Now(), false
	step := func(l *lock, sent time.Time) (changed bool) {
		i := index(l.Owners, from.Wire.ID)
		if changed = i >= 0 && index(l.Owners, to.Wire.ID) < 0; changed {
			l.Owners[i] = to.Wire.claim
			l.Owners[i].Since, l.Owners[i].Fence = l.now.UnixMilli(), l.fences()
		}
		if s = d.standingOf(to, l, changed); unsure {
			sent = start // by an earlier try, perhaps
		}
		s.Sent = sent
		return changed
	}
	for tries, again := 1, true; again; tries++ {
		var l lock
		l, err = d.change(ctx, from.Key, d.guess(from.Key), step)
		s.Fences = l.fencesOf(to.Wire.ID)
		to.Wire.fence = s.Fences.First
		unsure = unsure || unanswered(err)
		again = (unanswered(err) || errors.Is(err, ErrBusy)) && time.Since(start) < from.Window && pause(ctx, d.pauseAfter(tries)) && !d.client.Closed()
	}
	from.Wire.unsure, to.Wire.unsure = from.Wire.unsure || unsure, to.Wire.unsure || unsure
	if err == nil && s.Kind != driver.Granted {
		err = distributed.ErrLeaseLost
	}
	return s, err
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
