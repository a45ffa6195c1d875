package redislock

import (
	"context"

	"github.com/wllock/wllock/distributed"
)

// place is an attempt that waits.
type place struct{ a *attempt }

// Granted implements distributed.Place.
func (p place) Granted() <-chan distributed.Lease { return p.a.granted }

// Leave implements distributed.Place.
func (p place) Leave(ctx context.Context) error {
	a := p.a
	a.mu.Lock()
	switch a.state {
	case waiting, claiming:
		a.state = over
		a.node.beats.Remove(&a.item)
		a.mu.Unlock()
		return a.leave(ctx)
	case leased:
		a.mu.Unlock()
		select {
		case l := <-a.granted: // unread, so ours to give back
			return ignoreLost(l.Release(ctx))
		default: // its reader has it
			return nil
		}
	default:
		a.mu.Unlock()
		return nil
	}
}

// leave asks the server to drop the place. Without an answer in time it is dropped in the background.
func (a *attempt) leave(ctx context.Context) error {
	a.b.forget(a)
	c := a.leaving()
	_, err := a.b.ask(ctx, c, a.ttl, a.ttl)
	if err != nil {
		a.giveBack()
	}
	return err
}
