package redislock

import (
	"context"
	"errors"

	"github.com/wllock/wllock/distributed"
)

// place is an attempt that waits.
type place struct{ a *attempt }

// Granted implements distributed.Place.
func (p place) Granted() <-chan distributed.Lease { return p.a.granted }

// Holder implements distributed.HolderTeller.
func (p place) Holder() string {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.a.holder
}

// Leave implements distributed.Place.
func (p place) Leave(ctx context.Context) error {
	a := p.a
	a.mu.Lock()
	switch a.state {
	case waiting, claiming:
		a.state = ended
		a.stopHeartbeats()
		a.mu.Unlock()
		return a.leave(ctx)
	case leased:
		a.mu.Unlock()
		select {
		case l := <-a.granted: // unread, so ours to release
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
	a.attempts.forget(a)
	_, err := a.s.ask(ctx, a.wire.leave(), a.ttl, a.ttl)
	if err != nil {
		a.leaveInBackground()
	}
	return err
}

func ignoreLost(err error) error {
	if errors.Is(err, distributed.ErrLeaseLost) {
		return nil
	}
	return err
}
