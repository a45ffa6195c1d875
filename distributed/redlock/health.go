package redlock

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

const (
	// pingBudget bounds Ping and Echo.
	pingBudget = time.Second
	// ttlMemory is how long a TTL in use is remembered at least.
	ttlMemory = 5 * time.Minute
	// rttWeight is the weight of a new measurement in the smoothed round trip (as in TCP, RFC 6298).
	rttWeight = 8
)

// Observe implements distributed.Observable. An exchange is one request to all servers. It counts as answered when a majority has answered: one
// server that is away is no outage.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.client.Observe(f) }

// exchanged reports an exchange that was sent at that time and ends now.
func (b *Backend) exchanged(what string, sent time.Time, err error) {
	took := max(time.Since(sent), 1)
	if err == nil {
		old := b.rtt.Load()
		b.rtt.Store(old + (int64(took)-old)/rttWeight)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, distributed.ErrClosed) {
		return
	}
	e := distributed.Exchange{Sent: sent}
	if err == nil {
		e.RTT = took
	} else {
		e.Err = b.unavailable(what, err)
		if errors.Is(err, distributed.ErrRefused) {
			e.RTT = took
		}
	}
	b.client.Report(e)
}

// Ping implements distributed.Backend. It returns nil if a majority of the servers accepts scripts that write. It does not check rights to keys:
// see Probe.
func (b *Backend) Ping(ctx context.Context) error {
	return b.ready(ctx, "ping", ask{Call: *conn.NewCall(readyScript, nil)})
}

// ready has a majority answer a question like k. It tries for a second (pingBudget).
func (b *Backend) ready(ctx context.Context, what string, k ask) error {
	began := time.Now()
	for try := 0; ; try++ {
		_, err := b.all(ctx, what, pingBudget/2, k)
		again := jittered(doubled(firstBackoff, try, longestBackoff))
		if err == nil || errors.Is(err, distributed.ErrClosed) || errors.Is(err, distributed.ErrRefused) ||
			time.Since(began)+again > pingBudget {
			return err
		}
		if parts.Pause(ctx, again); ctx.Err() != nil {
			return keyless.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// Echo implements distributed.Observable.
func (b *Backend) Echo(ctx context.Context) error {
	_, err := b.all(ctx, "echo", pingBudget, ask{Call: *conn.NewCall(echoScript, nil)})
	return err
}

var echoScript = conn.NewScript("echo", "#!lua flags=allow-oom\nreturn 'ok'")

// LongestTTL implements distributed.TTLRegistry.
func (b *Backend) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	ttl := min(own, math.MaxInt64/4) // twice as long is remembered
	c := conn.NewCall(ttlScript, []string{prefixOf(system) + "ttls"}, millis(ttl), millis(max(ttlMemory, 2*ttl)))
	replies, err := b.all(ctx, "ttl", pingBudget, ask{Call: *c, in: b.space(system)})
	if err != nil {
		return 0, err
	}
	longest := own
	for _, r := range replies {
		longest = max(longest, duration(r))
	}
	return longest, nil
}

var (
	_ distributed.Observable  = (*Backend)(nil)
	_ distributed.TTLRegistry = (*Backend)(nil)
	_ distributed.Prober      = (*Backend)(nil)
)

// readyScript does nothing. What keeps it from running keeps enter from it: a full memory, a server that only reads.
var readyScript = conn.NewScript("ready", "#!lua\nreturn 'ok'")

// Probe implements distributed.Prober. In addition to Ping, it checks that a majority of the servers lets this user use the keys of this lock,
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
