package redislimit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/middleware/ratelimit"
)

const (
	// pingBudget bounds a Ping whose context has no end.
	pingBudget = 5 * time.Second
	// probes are enough identities that each node of a cluster, or shard of a ring, has one.
	probes = 1000
)

// pinged is a policy that never refuses. What it leaves in Redis is gone after a second.
var pinged = ratelimit.Policy{Name: "ping", Quota: 1_000_000, Window: time.Second}

// Ping makes a charge of its own on every node, and returns an error that says why requests could not be charged, or nil. Call it at start.
// After ratelimit.ErrRefused an operator has to fix the cause: a missing ACL rule, a wrong password, or a server that is too old. After any
// other error Redis is away, and may come back. Ping takes at most 5 s.
func (l *Limiter) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingBudget)
	defer cancel()
	ids, err := l.probes(ctx)
	if err != nil {
		return l.sorted("ping", err)
	}
	for node, id := range ids {
		if e := l.probe(ctx, id); e != nil {
			e = l.sorted("ping "+node, e)
			if errors.Is(e, ratelimit.ErrRefused) {
				return e
			}
			err = e
		}
	}
	return err
}

// probe charges id by the script's text and by its hash: a charge uses one or the other.
func (l *Limiter) probe(ctx context.Context, id string) error {
	for _, run := range []runner{(*redis.Script).Eval, (*redis.Script).EvalSha} {
		if _, err := l.charge(ctx, pinged, id, rand.Text(), pinged.Window, run); err != nil {
			return err
		}
	}
	return nil
}

// probes returns an identity for each node, by the node's address.
func (l *Limiter) probes(ctx context.Context) (map[string]string, error) {
	var nodeOf func(key string) (*redis.Client, error)
	switch c := l.client.(type) {
	case *redis.ClusterClient:
		nodeOf = func(key string) (*redis.Client, error) { return c.MasterForKey(ctx, key) }
	case *redis.Ring:
		nodeOf = c.GetShardClientForKey
	case *redis.Client:
		nodeOf = func(string) (*redis.Client, error) { return c, nil }
	default:
		return map[string]string{fmt.Sprintf("%T", c): "ping-0"}, nil
	}
	ids := map[string]string{}
	for n := range probes {
		id := "ping-" + strconv.Itoa(n) // no other identity: these consist of letters and digits
		node, err := nodeOf(l.key(id))
		if err != nil {
			return nil, err
		}
		ids[node.Options().Addr] = id
	}
	return ids, nil
}
