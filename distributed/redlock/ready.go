package redlock

import (
	"context"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

// readyScript does nothing. What keeps it from running keeps enter from it: a full memory, a server that only reads.
var readyScript = conn.NewScript("ready", "#!lua\nreturn 'ok'")

// Probe implements distributed.Prober: beside what Ping asks, whether a majority of the servers lets this user use the keys of this lock,
// and the helper keys and the channel of its system, with every command. The error names the ACL rules that are missing.
func (b *Backend) Probe(ctx context.Context, p distributed.Probe) error {
	if err := parts.CheckProbe("redlock", p); err != nil {
		return err
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
