package redislock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// maxRenewed bounds the leases that one call renews. Such a call occupies the server for about as long as a pipeline of
// conn.MaxBatch calls.
const maxRenewed = 512

// Renew implements driver.Renewer (rules K1 and R8).
func (d half) Renew(ctx context.Context, due []*attempt) {
	for len(due) > 1 && d.s.single.Load() {
		n := alike(due)
		if !d.s.renewTogether(ctx, due[:n]) {
			break
		}
		due = due[n:]
	}
	for len(due) > 0 {
		n := min(len(due), conn.MaxBatch)
		d.s.renewBatch(ctx, due[:n])
		due = due[n:]
	}
}

// keep is try for renewals. They wait for no exchange of callers (rule R8).
func (s *session) keep(ctx context.Context, ttl time.Duration, calls ...*conn.Call) {
	if len(calls) == 1 {
		calls[0].Ahead = true
	}
	s.try(ctx, ttl, calls...)
}

// alike returns how many leases at the front one call can renew.
func alike(batch []*attempt) int {
	n := 1
	for n < min(len(batch), maxRenewed) && modeOf(batch[n]) == modeOf(batch[0]) && batch[n].TTL == batch[0].TTL {
		n++
	}
	return n
}

// renewTogether renews leases of one mode and TTL with one call; false: they need a call each, because they are shared,
// or only one, or because the server refuses them together, perhaps for a single key that we may not use.
func (s *session) renewTogether(ctx context.Context, batch []*attempt) bool {
	if len(batch) == 1 || modeOf(batch[0]) != distributed.Exclusive {
		return false
	}
	ttl := batch[0].TTL
	c := renewAll(ttl, len(batch), func(i int) *wireAttempt { return &batch[i].Wire.wireAttempt })
	sent := time.Now()
	s.keep(ctx, ttl, c)
	if c.Err != nil {
		transient := conn.Classify(c.Err) == conn.Transient
		if transient {
			for _, a := range batch {
				a.Unrenewed(conn.Unavailable("renew", c.Err))
			}
		}
		return transient
	}
	for i, a := range batch {
		renewedAs(a, distributed.Exclusive, readRenewAll(c.Reply, i), sent)
	}
	return true
}

func renewed(a *attempt, r renewReply, sent time.Time) {
	if r.held {
		a.Renewed(sent, r.contended)
	} else {
		a.Gone()
	}
}

// renewedAs takes the answer to a renewal that knows leases of this mode only.
func renewedAs(a *attempt, mode distributed.Mode, r renewReply, sent time.Time) {
	if r.held || modeOf(a) == mode {
		renewed(a, r, sent)
	} else {
		a.Lease().Postpone() // it was made shared meanwhile, of which the answer knows nothing
	}
}

// renewBatch renews leases with a call each, in one pipeline.
func (s *session) renewBatch(ctx context.Context, batch []*attempt) {
	calls := make([]*conn.Call, len(batch))
	shortest := batch[0].TTL
	for i, a := range batch {
		calls[i] = a.Wire.renew()
		shortest = min(shortest, a.TTL)
	}
	sent := time.Now()
	s.keep(ctx, shortest, calls...)
	var moving []*attempt
	for i, a := range batch {
		switch {
		case calls[i].Err == nil:
			renewed(a, readRenew(calls[i].Reply), sent)
		case conn.Moving(calls[i].Err):
			moving = append(moving, a)
		default:
			a.Unrenewed(conn.Unavailable("renew", calls[i].Err))
		}
	}
	if len(moving) > 0 {
		s.renewMoving(ctx, moving, shortest)
	}
}

// renewMoving renews leases whose slots are being moved, which can take longer than they last.
func (s *session) renewMoving(ctx context.Context, batch []*attempt, shortest time.Duration) {
	calls := make([]*conn.Call, len(batch))
	modes := make([]distributed.Mode, len(batch))
	for i, a := range batch {
		modes[i] = modeOf(a)
		if a.Wire.change.Load() == changing {
			modes[i] = a.Mode // most likely: its change needs several keys, too
		}
		calls[i] = a.Wire.renewOne(modes[i])
	}
	sent := time.Now()
	s.keep(ctx, shortest, calls...)
	s.renewAgain(ctx, shortest, calls, func(i int, held bool) *conn.Call {
		if held || modes[i] == modeOf(batch[i]) {
			return nil
		}
		modes[i] = distributed.Shared // the change may have been made, and its reply lost
		return batch[i].Wire.renewOne(distributed.Shared)
	})
	s.renewAgain(ctx, shortest, calls, func(i int, held bool) *conn.Call {
		if !held || modes[i] != distributed.Shared {
			return nil
		}
		return batch[i].Wire.renewShared() // the reader is known to be listed now
	})
	for i, a := range batch {
		if calls[i].Err != nil {
			a.Unrenewed(conn.Unavailable("renew", calls[i].Err))
		} else {
			r, l := readRenew(calls[i].Reply), a.Lease()
			r.contended = l != nil && l.Contended() // they do not say
			if modes[i] == distributed.Shared && l != nil && distributed.Over(time.Now(), l.Until()) {
				r.held = false // two calls: the lock may have expired between them, and have been granted to others
			}
			renewedAs(a, modes[i], r, sent)
		}
	}
}

// renewAgain replaces calls that were answered by those that next returns for them, and makes them.
func (s *session) renewAgain(ctx context.Context, shortest time.Duration, calls []*conn.Call, next func(i int, held bool) *conn.Call) {
	var again []*conn.Call
	for i, c := range calls {
		if c.Err != nil {
			continue
		}
		if c = next(i, readRenew(c.Reply).held); c != nil {
			calls[i] = c
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		s.keep(ctx, shortest, again...)
	}
}
