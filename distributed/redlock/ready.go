package redlock

import (
	"context"
	"fmt"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// readyScript does nothing, with the keys of a lock. What keeps it from running keeps enter from it: a right to these keys
// that is missing, a full memory, a server that only reads.
var readyScript = conn.NewScript("ready", "#!lua\nreturn 'ok'")

// Probe implements distributed.Prober: beside what Ping asks, whether a majority of the servers has memory and lets this user
// use the keys of this lock.
func (b *Backend) Probe(ctx context.Context, p distributed.Probe) error {
	if p.Key == "" || p.TTL < distributed.MinTTL {
		return fmt.Errorf("redlock: a probe needs a key and a TTL of at least %v", distributed.MinTTL)
	}
	if err := b.Ping(ctx); err != nil {
		return err
	}
	_, err := b.all(ctx, "probe", pingBudget, conn.NewCall(readyScript, keysOf(p.Key)))
	return err
}

var _ distributed.Prober = (*Backend)(nil)
