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

// renew is what the Keeper calls: it renews all leases that are due (rules K1 and R8). A grant that lies unread is
// not claimed yet: perhaps nobody will release it (rule K5). The Keeper's limit of T/3 is too short for a new connection over a
// slow network; each try has its own, and all end with the session.
func (s *session) renew(_ context.Context, due []distributed.Lease) {
	batch := make([]*lease, 0, len(due))
	for _, w := range due {
		if l := w.(*lease); len(l.a.granted) == 0 {
			batch = append(batch, l)
		} else {
			l.Postpone()
		}
	}
	for len(batch) > 1 && s.single.Load() {
		n := alike(batch)
		if !s.renewTogether(batch[:n]) {
			break
		}
		batch = batch[n:]
	}
	for len(batch) > 0 {
		n := min(len(batch), conn.MaxBatch)
		s.renewBatch(batch[:n])
		batch = batch[n:]
	}
}

// keep is try for renewals. They wait for no exchange of callers (rule R8).
func (s *session) keep(ttl time.Duration, calls ...*conn.Call) {
	if len(calls) == 1 {
		calls[0].Ahead = true
	}
	s.try(s.ctx, ttl, calls...)
}

// alike returns how many leases at the front one call can renew.
func alike(batch []*lease) int {
	n := 1
	for n < min(len(batch), maxRenewed) && batch[n].mode() == batch[0].mode() && batch[n].a.ttl == batch[0].a.ttl {
		n++
	}
	return n
}

// renewTogether renews leases of one mode and TTL with one call; false: they need a call each, because they are shared,
// or only one, or because the server refuses them together, perhaps for a single key that we may not use.
func (s *session) renewTogether(batch []*lease) bool {
	if len(batch) == 1 || batch[0].mode() != distributed.Exclusive {
		return false
	}
	ttl := batch[0].a.ttl
	c := renewAll(ttl, len(batch), func(i int) *wireAttempt { return &batch[i].a.wire })
	sent := time.Now()
	s.keep(ttl, c)
	if c.Err != nil {
		return conn.Classify(c.Err) == conn.Transient
	}
	for i, l := range batch {
		l.renewedAs(distributed.Exclusive, readRenewAll(c.Reply, i), sent)
	}
	return true
}

// renewedAs takes the answer to a renewal that knows leases of this mode only.
func (l *lease) renewedAs(mode distributed.Mode, r renewReply, sent time.Time) {
	if r.held || l.mode() == mode {
		l.renewed(r, sent)
	} else {
		l.Postpone() // it was made shared meanwhile, of which the answer knows nothing
	}
}

// renewBatch renews leases with a call each, in one pipeline. A renewal without an answer changes nothing: the Keeper
// asks again.
func (s *session) renewBatch(batch []*lease) {
	calls := make([]*conn.Call, len(batch))
	shortest := batch[0].a.ttl
	for i, l := range batch {
		calls[i] = l.a.wire.renew()
		shortest = min(shortest, l.a.ttl)
	}
	sent := time.Now()
	s.keep(shortest, calls...)
	var moving []*lease
	for i, l := range batch {
		switch {
		case calls[i].Err == nil:
			l.renewed(readRenew(calls[i].Reply), sent)
		case conn.Moving(calls[i].Err):
			moving = append(moving, l)
		}
	}
	if len(moving) > 0 {
		s.renewMoving(moving, shortest)
	}
}

// renewMoving renews leases whose slots are being moved, which can take longer than they last.
func (s *session) renewMoving(batch []*lease, shortest time.Duration) {
	calls := make([]*conn.Call, len(batch))
	modes := make([]distributed.Mode, len(batch))
	for i, l := range batch {
		modes[i] = l.mode()
		if l.change.Load() == changing {
			modes[i] = l.a.mode // most likely: its change needs several keys, too
		}
		calls[i] = l.a.wire.renewOne(modes[i])
	}
	sent := time.Now()
	s.keep(shortest, calls...)
	s.renewAgain(shortest, calls, func(i int, held bool) *conn.Call {
		if held || modes[i] == batch[i].mode() {
			return nil
		}
		modes[i] = distributed.Shared // the change may have been made, and its reply lost
		return batch[i].a.wire.renewOne(distributed.Shared)
	})
	s.renewAgain(shortest, calls, func(i int, held bool) *conn.Call {
		if !held || modes[i] != distributed.Shared {
			return nil
		}
		return batch[i].a.wire.renewShared() // the reader is known to be listed now
	})
	for i, l := range batch {
		if calls[i].Err == nil {
			r := readRenew(calls[i].Reply)
			r.contended = l.Contended() // they do not say
			if modes[i] == distributed.Shared && distributed.Over(time.Now(), l.Until()) {
				r.held = false // two calls: the lock may have expired between them, and have been granted to others
			}
			l.renewedAs(modes[i], r, sent)
		}
	}
}

// renewAgain replaces calls that were answered by those that next returns for them, and makes them.
func (s *session) renewAgain(shortest time.Duration, calls []*conn.Call, next func(i int, held bool) *conn.Call) {
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
		s.keep(shortest, again...)
	}
}
