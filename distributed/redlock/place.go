package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// place is an attempt that waits.
type place struct{ a *attempt }

// Granted implements distributed.Place.
func (p place) Granted() <-chan distributed.Lease { return p.a.granted }

// lock locks mu of the attempt that has the place now, and returns it.
func (p place) lock() *attempt {
	a := p.a
	a.mu.Lock()
	for a.heir != nil {
		heir := a.heir
		a.mu.Unlock()
		a = heir
		a.mu.Lock()
	}
	return a
}

// Leave implements distributed.Place.
func (p place) Leave(ctx context.Context) error {
	a := p.lock()
	switch a.state {
	case waiting, claiming:
		a.state = ended
		a.b.beats.Remove(&a.item)
		a.mu.Unlock()
		return a.leave(ctx)
	case leased:
		a.mu.Unlock()
		select {
		case l := <-a.granted: // unread, so ours to release
			if l == nil { // closed
				return nil
			}
			return ignoreLost(l.Release(ctx))
		default: // its reader has it
			return nil
		}
	default:
		a.mu.Unlock()
		return nil
	}
}

// restart gives the place to an attempt with a new token, because a yield was not answered and may be carried out at any time: a vote
// that it takes back must be nobody's. Or a Break has met the place while it had votes, and its token gets none any more. If the attempt went on without that server, it would keep a vote there that it cannot
// use, and with a few of them nobody could win. The caller holds mu.
func (a *attempt) restart() func() {
	id := a.b.attempts.next()
	h := &attempt{
		b: a.b, in: a.in, asked: id.Number, token: tokenOf(id, a.b.process), keys: a.keys, mode: a.mode, ttl: a.ttl, lane: a.lane,
		instance: a.instance, seats: make([]seat, len(a.seats)), settled: a.settled, isSettle: true, granted: a.granted,
		started: time.Now(), state: waiting,
	}
	h.item.Owner = h
	if !a.b.attempts.inherit(h) {
		return nothing // Close ends a
	}
	a.state, a.heir = ended, h
	a.b.beats.Remove(&a.item)
	return func() {
		a.rollBack()
		h.beat(everyNode)
	}
}

// leave drops the place on every server and waits for a majority. The others are told in the background.
func (a *attempt) leave(ctx context.Context) error {
	a.b.attempts.forget(a)
	until := time.Now().Add(a.window())
	g := newGathering(a.b, "leave")
	for _, n := range a.b.nodes {
		a.leaveNode(n, until, g.done)
	}
	return g.wait(ctx, tryTimeout(a.ttl, a.b.roundTrip()))
}

func ignoreLost(err error) error {
	if errors.Is(err, distributed.ErrLeaseLost) {
		return nil
	}
	return err
}
