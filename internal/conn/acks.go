package conn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/keyless"
)

// Acks is how many replicas have to acknowledge what an Acked call has written, and how long they may take, in whole milliseconds. The zero
// Acks is none.
type Acks struct {
	Replicas int
	Within   time.Duration
}

// ackSlots is how many exchanges that wait for replicas may be under way with one node. Further calls gather for the next, and one WAIT is for all
// of them. These slots are not those of other callers: while replicas are away each of these exchanges lasts for Within.
const ackSlots = 4

// unacked says that too few replicas have acknowledged a write. The server has waited for them, so a repeat does not help.
type unacked struct{ error }

// RedisError makes it an answer of the server.
func (unacked) RedisError() {}

// Keyless implements keyless.Error.
func (u unacked) Keyless() (text string, safe bool) { return keyless.Text(u.error) }

// Unacked reports that a call was carried out, and that too few replicas have acknowledged that in time.
func Unacked(err error) bool { return errors.As(err, new(unacked)) }

// doAcked is Do for Acked calls of one node. WAIT answers for what its own connection has written, and holds up all behind it there. So the calls
// and one WAIT for all of them are one pipeline, which has a connection of the pool for itself. No redirection is followed, and no call is made
// anew outside of the pipeline: WAIT would answer for another server, or connection.
func (g *goRedis) doAcked(ctx context.Context, calls []*Call) {
	server := g.server(ctx, calls[0].Key())
	cmds, wait := g.ackedPipeline(ctx, server, calls, func(c *Call) []any { return c.Args })
	if slices.ContainsFunc(cmds, func(cmd *redis.Cmd) bool { return lacksScript(cmd.Err()) }) {
		cmds, wait = g.ackedPipeline(ctx, server, calls, (*Call).withText)
	}
	acked := g.acknowledged(wait)
	for i, c := range calls {
		g.replied(ctx, c, cmds[i])
		if c.Err == nil {
			c.Err = acked
		} else if cluster, ok := g.client.(*redis.ClusterClient); ok && redis.HasErrorPrefix(cmds[i].Err(), "MOVED") {
			c.Err = keyless.Errorf("the slot has moved to another node: %w", keyless.Known(cmds[i].Err(), "MOVED"))
			cluster.ReloadState(ctx)
		}
	}
}

func (g *goRedis) ackedPipeline(ctx context.Context, server redis.UniversalClient, calls []*Call, args func(*Call) []any) ([]*redis.Cmd, *redis.IntCmd) {
	cmds := make([]*redis.Cmd, len(calls))
	wait := redis.NewIntCmd(ctx, "wait", g.acks.Replicas, g.acks.Within.Milliseconds())
	_, _ = server.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, c := range calls {
			cmds[i] = command(ctx, args(c))
			_ = p.Process(ctx, cmds[i])
		}
		return p.Process(ctx, wait)
	})
	return cmds, wait
}

// acknowledged judges the answer to WAIT.
func (g *goRedis) acknowledged(wait *redis.IntCmd) error {
	have, err := wait.Result()
	switch why := explained(g.prefix, "", err); {
	case redis.IsPermissionError(err):
		return keyless.Errorf("the user lacks the ACL rule +wait: %w", why)
	case lacksCommand(err):
		return keyless.Errorf("the server lacks the command WAIT: %w", why)
	case err != nil:
		return why
	case have < int64(g.acks.Replicas):
		return unacked{keyless.Errorf("%d of %d replicas have acknowledged within %v", have, g.acks.Replicas, g.acks.Within)}
	}
	return nil
}
