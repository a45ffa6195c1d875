package redlock

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

var _ driver.Transferer[claim] = half{}

// detachedNumber is in the tokens of detached leases, in place of when they asked. They are the youngest, so no bid yields what is split to one.
const detachedNumber = math.MaxInt64

// Detached implements driver.Transferer. Its token follows from the id.
func (d half) Detached(ctx context.Context, a *attempt, id string) error {
	err := d.Prepare(ctx, a)
	if err == nil {
		one := a.Wire.bid.Load()
		d.bids.Delete(one.token) // no notice is for it
		one.token = tokenOf(identity.Attempt{Number: detachedNumber}, processOf(distributed.DetachedName(id), ""))
		one.started, one.until = time.Now(), time.Now().Add(a.TTL) // for a Drop: servers have heard of it, and it may be lost
	}
	return err
}

// Transfer implements driver.Transferer. Rounds go on while the vote is split among adopters, and while no majority answers.
func (d half) Transfer(ctx context.Context, from, to *attempt) (s driver.Standing, err error) {
	what, lasts := "adopt", any("")
	if (distributed.Holder{Instance: to.Instance}).Detached() {
		what, lasts = "detach", millis(to.Lasts)
	}
	one, before := to.Wire.bid.Load(), from.Wire.bid.Load()
	until, leader := time.Now().Add(min(from.Window, to.Window)), ""
	for tries, again := 0, true; again; tries++ {
		_, err = one.takeOver(what, before, lasts).wait(ctx, time.Until(until))
		var why error
		if s, leader, why = one.took(leader); s.Kind == driver.Granted {
			one.eachSeat(false, before.leave) // what the server may have of it
			return s, nil
		}
		again = false
		switch {
		case errors.Is(why, distributed.ErrLeaseLost):
			err = why
		case why != nil:
			err = d.unavailable(what, why)
		case errors.Is(err, distributed.ErrRefused), ctx.Err() != nil, d.client.Closed():
		case time.Now().Before(until):
			again = true
			parts.Pause(ctx, splitPause(tries, d.roundTrip(), distributed.HeartbeatInterval(to.TTL)))
		case err == nil:
			err = d.unavailable(what, keyless.Errorf("the vote is split"))
		}
	}
	if lasts == "" {
		one.eachSeat(true, func(n *node) { n.send(one.question(n, one.transferCall(one.token, before.token, ""), func(*ask) {})) })
	} else if errors.Is(err, distributed.ErrLeaseLost) {
		one.depart()
	}
	return s, err
}

// eachSeat calls f for each server that votes for the bid, or does not.
func (a *bid) eachSeat(given bool, f func(*node)) {
	for i, n := range a.b.nodes {
		a.mu.Lock()
		is := a.seats[i].given()
		a.mu.Unlock()
		if is == given {
			f(n)
		}
	}
}

// takeOver asks all servers to pass the vote for another bid on to this one. To adopt is decided by a majority. To detach waits for all: a
// server that came later than the adopter would keep that vote.
func (a *bid) takeOver(what string, from *bid, lasts any) *poll {
	p := a.b.poll(what, func(*ask) verdict {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch t := a.tally(); {
		case t.busy > 0 && (t.votes < a.b.quorum || lasts != ""):
			return pending
		case t.errs > t.n-a.b.quorum:
			return unavailable
		}
		return granted
	})
	p.heard = func(k *ask) { a.answered(k, readTransfer(k, a.window())) }
	c := a.transferCall(from.token, a.token, lasts)
	a.mu.Lock()
	a.started = time.Now()
	for i := range a.seats {
		a.seats[i].ask(a.started)
	}
	a.mu.Unlock()
	for _, n := range a.b.nodes {
		k := a.question(n, c, p.done)
		k.ttl = min(a.ttl, from.ttl)
		n.send(k)
	}
	return p
}

func (a *bid) transferCall(from, to string, lasts any) conn.Call {
	return a.call(transferScript, modeLetter(a.mode), 0, from, to, lasts)
}

// readTransfer reads the answer of a server. A vote may last for less than the window.
func readTransfer(k *ask, window time.Duration) standing {
	rest, text, _ := strings.Cut(k.Reply, " ")
	s := readStanding(text)
	if s.kind == 0 && k.Err == nil {
		k.Err = errUnreadable
	}
	if s.kind == 'v' {
		s.short = max(window-duration(rest), 0)
	}
	return s
}

// took decides what comes of a round: the votes, an error, or another round. leader is the adopter that has a majority here, and was that in
// the round before (rule Q13).
func (a *bid) took(before string) (s driver.Standing, leader string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, rivals, yields := a.tally(), ballot{}, false
	for i := range a.seats {
		if r := a.seats[i].standing; r.kind == 'h' && r.mode == "d" {
			rivals.add(r.owner)
			yields = yields || older(r.owner, a.token)
		}
	}
	if most := rivals.elected(a.b.quorum); len(most) > 0 {
		leader = most[0]
	}
	if t.votes >= a.b.quorum {
		return a.win(), leader, nil
	}
	if err = a.young(); err == nil && (yields || leader != "" && leader == before || provenLost(t.n, t.waits) && (t.given == 0 || len(rivals) == 0)) {
		err = distributed.ErrLeaseLost
	}
	return s, leader, err
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
