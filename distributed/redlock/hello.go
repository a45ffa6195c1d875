package redlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

// greet returns the options with a hello as the first question on every connection, about all systems that are known: hello.lua says why.
// What the options' owner wants done on a new connection is done before.
func (n *node) greet(o *redis.Options) *redis.Options {
	c, before := *o, o.OnConnect
	c.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if before != nil {
			if err := before(ctx, cn); err != nil {
				return err
			}
		}
		all, args := n.b.known(), []any{0}
		for _, in := range all {
			args = append(args, in.mark, millis(n.b.longestTTL(in)))
		}
		reply, err := cn.Eval(ctx, helloScript.Text, nil, args...).Text()
		if err != nil {
			return keyless.Errorf("hello: %w", err)
		}
		return n.b.met(n, reply, all...)
	}
	return &c
}

// met notes what a server says of itself: its process, which no other of the servers may be, since it would vote twice; and about these
// systems.
func (b *Backend) met(n *node, reply string, all ...*space) error {
	f := strings.Split(reply, " ")
	if len(f) != 1+2*len(all) {
		return conn.Refusal(fmt.Errorf("the server answers %q to hello", reply))
	}
	b.runsMu.Lock()
	defer b.runsMu.Unlock()
	for i, run := range b.runs {
		if i != n.index && run == f[0] {
			b.twin = conn.Refusal(keyless.Errorf("%s and %s are one server: its vote would count twice", b.nodes[i].name, n.name))
			return b.twin
		}
	}
	for i, in := range all {
		youth, longest := f[1+2*i], f[2+2*i]
		if youth == "-" { // no right to it
			continue
		}
		in.learn(duration(longest))
		if was := b.runs[n.index]; was != "" && was != f[0] { // it was restarted after Vouch
			in.vouched.Or(1 << n.index)
		}
		news := in.met.Or(1<<n.index)&(1<<n.index) == 0 || b.runs[n.index] != f[0]
		if rest := duration(youth); rest > 0 && news {
			b.log.Warn("redlock: a server has no mark, or was restarted: its vote counts later", "server", n.name, "system", in.system, "in", rest)
		}
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

// longestTTL is the longest of a system that we know of by now, or were told of when we were opened.
func (b *Backend) longestTTL(in *space) time.Duration { return max(b.least, in.learn(0)) }

// longest is the TTL after which a server counts for the attempt: others may have leases as long as its own, or as a server tells. The
// caller holds mu.
func (a *bid) longest() time.Duration {
	longest := max(a.ttl, a.b.longestTTL(a.in))
	for i := range a.seats {
		longest = max(longest, min(a.seats[i].noted, maxTTL))
	}
	return longest
}

// Vouch declares that none of the servers has lost a vote that may still be relied on. Then the servers count at once, instead of after the
// longest lease TTL in use, and remember no TTL. It is for servers that are used for the first time, and for tests: call it only when no
// instance can have a lease. Vouch applies to the systems that the Backend has been asked about by then, by a lock, Probe (as Locker.Ping does)
// or LongestTTL. If there is none, it applies to the first system that the Backend will be asked about. A majority must answer.
func (b *Backend) Vouch(ctx context.Context) error {
	marks, args := []string{}, []any{1}
	for _, in := range b.known() {
		marks, args = append(marks, in.mark), append(args, millis(b.longestTTL(in)))
	}
	_, err := b.all(ctx, "vouch", vouchTimeout, ask{Call: *conn.NewCall(helloScript, marks, args...)})
	b.spaces.mu.Lock()
	defer b.spaces.mu.Unlock()
	b.spaces.vouch = err == nil && len(b.spaces.all) == 0
	return err
}

const vouchTimeout = 2 * time.Second
