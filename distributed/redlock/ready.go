package redlock

import (
	"context"
	"fmt"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// readyScript does nothing. What keeps it from running keeps enter from it: a full memory, a server that only reads.
var readyScript = conn.NewScript("ready", "#!lua\nreturn 'ok'")

// Probe implements distributed.Prober: beside what Ping asks, whether a majority of the servers lets this user use the keys of this lock,
// and the helper keys and the channel of its system, with every command. The error names the ACL rules that are missing.
func (b *Backend) Probe(ctx context.Context, p distributed.Probe) error {
	if p.Key == "" || p.TTL < distributed.MinTTL {
		return fmt.Errorf("redlock: a probe needs a key and a TTL of at least %v", distributed.MinTTL)
	}
	if err := checkKey(p.Key); err != nil {
		return err
	}
	in := b.space(conn.SystemOf(p.Key))
	b.listen()
	own := prefixOf(in.system)
	return b.ready(ctx, "probe", ask{Call: *conn.NewCall(probeScript, append(keysOf(p.Key), own+"probe:"+b.process), own+b.process), in: in})
}

var _ distributed.Prober = (*Backend)(nil)
