package driver

import (
	"cmp"
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// Renewed says that a renewal was answered which was sent then, and whether another instance waits.
func (a *Attempt[W]) Renewed(sent time.Time, contended bool) {
	a.mu.Lock()
	a.renewed = sent
	l := a.lease
	a.mu.Unlock()
	if l != nil {
		l.Renewed(distributed.Validity(sent, a.Lasts))
		a.contention(l, contended, sent)
	}
}

// Unrenewed says that a renewal has failed, and why: err Is ErrUnavailable.
func (a *Attempt[W]) Unrenewed(err error) {
	if l := a.Lease(); l != nil {
		l.Failed(err)
	}
}

// Lease returns the attempt's, as the Keeper knows it. nil: it has none.
func (a *Attempt[W]) Lease() *keepalive.Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == nil {
		return nil
	}
	return &a.lease.Lease
}

// late reports that too little of a grant is left for a claim in the background.
func (a *Attempt[W]) late(s Standing) bool {
	r := a.b.renewer
	return r != nil && distributed.Left(time.Now(), distributed.Validity(s.Sent, a.Window)) < max(a.Window/4, r.ClaimTime(a))
}

// sendRenewals notes that the service may have heard of the attempts, whatever becomes of the answers.
func (ln *Lane[W]) sendRenewals(ctx context.Context, some []*Attempt[W]) {
	note := func() {
		for _, a := range some {
			a.hear()
		}
	}
	note()
	defer note()
	ln.b.renewer.Renew(ctx, some)
}

func (a *Attempt[W]) hear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = time.Now()
}

// renewNow renews out of turn, until that is answered or so much time has passed, and returns when it was sent. ErrLeaseLost: nothing
// is there to renew.
func (a *Attempt[W]) renewNow(ctx context.Context, most time.Duration) (sent time.Time, err error) {
	if c := a.b.claimer; c != nil {
		a.hear()
		defer a.hear()
		return c.Claim(ctx, a, most)
	}
	begin := time.Now()
	for tries := 1; ; tries++ {
		a.Lane.sendRenewals(ctx, a.self[:])
		a.mu.Lock()
		renewed, gone := a.renewed, a.gone
		a.mu.Unlock()
		switch {
		case gone:
			return sent, distributed.ErrLeaseLost
		case !renewed.Before(begin):
			return renewed, nil
		case a.b.Closed():
			return sent, distributed.ErrClosed
		case ctx.Err() != nil, time.Since(begin) > most:
			return sent, a.b.unanswered("renew", cmp.Or(ctx.Err(), errSilent), nil)
		}
		select {
		case <-time.After(a.b.set.Pause(tries)):
		case <-ctx.Done():
		}
	}
}
