package redlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/conn"
)

// greet returns the options with a hello as the first question on every connection: hello.lua says why. What the options'
// owner wants done on a new connection is done before.
func (n *node) greet(o *redis.Options) *redis.Options {
	c, before := *o, o.OnConnect
	c.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if before != nil {
			if err := before(ctx, cn); err != nil {
				return err
			}
		}
		reply, err := cn.Eval(ctx, helloScript.Text, []string{markKey}, millis(n.b.longestTTL()), 0).Text()
		if err != nil {
			return fmt.Errorf("hello: %w", err)
		}
		return n.b.met(n, reply)
	}
	return &c
}

// met notes what a server says of itself: its process, which no other of the servers may be, since it would vote twice.
func (b *Backend) met(n *node, reply string) error {
	f := strings.Split(reply, " ")
	if len(f) != 3 {
		return conn.Refusal(fmt.Errorf("the server answers %q to hello", reply))
	}
	b.learn(duration(f[2]))
	b.runsMu.Lock()
	defer b.runsMu.Unlock()
	for i, run := range b.runs {
		if i != n.index && run == f[0] {
			b.twin = conn.Refusal(fmt.Errorf("%s and %s are one server: its vote would count twice", b.nodes[i].name, n.name))
			return b.twin
		}
	}
	if youth := duration(f[1]); youth > 0 && b.runs[n.index] != f[0] {
		b.log.Warn("redlock: a server has no mark, or was restarted: its vote counts later", "server", n.name, "in", youth)
	}
	b.runs[n.index], b.twin = f[0], nil
	return nil
}

// twinned returns the error about a server that is named twice, if one has been found.
func (b *Backend) twinned() error {
	b.runsMu.Lock()
	defer b.runsMu.Unlock()
	return b.twin
}

// learn notes the longest TTL of leases, by a server (0: none), and returns the longest that we have heard of, or were told of when we
// were opened.
func (b *Backend) learn(longest time.Duration) time.Duration {
	b.heardMu.Lock()
	defer b.heardMu.Unlock()
	b.heard = b.heard.hear(time.Now(), longest)
	return max(b.least, b.heard.ttl)
}

// longestTTL is the longest that we know of by now.
func (b *Backend) longestTTL() time.Duration { return b.learn(0) }

// longest is the TTL after which a server counts for the attempt: others may have leases as long as its own, or as a server tells. The
// caller holds mu.
func (a *attempt) longest() time.Duration {
	longest := max(a.ttl, a.b.longestTTL())
	for i := range a.seats {
		longest = max(longest, a.seats[i].noted)
	}
	return longest
}

// Vouch declares that none of the servers has lost a vote that may still be relied on: they count at once, instead of after
// the longest lease TTL in use, and remember no TTL. It is for servers that are used for the first time, and for tests: call it only when
// no instance can have a lease. A majority must answer.
func (b *Backend) Vouch(ctx context.Context) error {
	_, err := b.all(ctx, "vouch", vouchTimeout, conn.NewCall(helloScript, []string{markKey}, millis(b.longestTTL()), 1))
	return err
}

const vouchTimeout = 2 * time.Second
