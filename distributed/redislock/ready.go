package redislock

import (
	"context"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// readyScript does nothing, with the keys of a lock. What keeps it from running keeps enter from it: a right to these keys
// that is missing, a full memory, a server that only reads.
var readyScript = conn.NewScript("ready", "#!lua\nreturn 'ok'")

// Probe implements distributed.Prober. In addition to Ping, it checks that the user may use the keys of this lock and its system's channel, that
// there is memory, and that the network is fast enough for the TTL.
func (b *Backend) Probe(ctx context.Context, p distributed.Probe) error {
	req := b.keyed(distributed.Request{Key: p.Key, Instance: b.s.process, TTL: p.TTL})
	if err := check(req); err != nil {
		return err
	}
	if b.client.Closed() {
		return distributed.ErrClosed
	}
	if err := b.prove(ctx, pingBudget, req.Key); err != nil {
		return err
	}
	if err := b.fastEnough(ctx, req.Key, p.TTL); err != nil { // first: over a slow network the rest may fail for want of time
		return err
	}
	keys := keysOf(req.Key, req.Instance)
	_, err := b.s.ask(ctx, conn.NewCall(readyScript, keys[:]), p.TTL, distributed.ClaimWindow(p.TTL))
	return err
}

var _ distributed.Prober = (*Backend)(nil)
