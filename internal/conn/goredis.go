package conn

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// goRedis is the transport for real servers.
type goRedis struct {
	client  redis.UniversalClient // our own: nobody else closes it
	cluster bool
	prefix  func(key string) string // see Config
	primary *primary                // what client connects to; nil without sentinels
	finder  *redis.Client           // whose dialer asks the sentinels, if it is ours to close
	setup   int
	silence *tlsSilence
	room    room
	acks    Acks
}

// setupTrips are those to connect and for HELLO, for the handshake of TLS, and to select a database.
func setupTrips(c *tls.Config, db int) int {
	trips := 2
	if c != nil {
		trips++
	}
	if db != 0 {
		trips++
	}
	return trips
}

// SetupTrips implements Transport.
func (g *goRedis) SetupTrips() int { return g.setup }

// Slots implements Transport.
func (g *goRedis) Slots() (callers, acked int) { return g.room.callers, g.room.acked }

// waiting returns ctx, for an exchange that may have to wait for a connection with a timer for its deadline: the pool knows no
// other end of its patience but PoolTimeout.
func (g *goRedis) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || !g.room.limited {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end)
}

// Do implements Transport. A lone call is sent by itself. Several share a pipeline, which the cluster client splits by node.
func (g *goRedis) Do(ctx context.Context, calls ...*Call) {
	ctx, cancel := g.waiting(ctx)
	defer cancel()
	if calls[0].Acked {
		g.doAcked(ctx, calls)
		return
	}
	if len(calls) == 1 {
		cmd := command(ctx, calls[0].Args)
		_ = g.client.Process(ctx, g.once(cmd)) // each command has its own error
		g.replied(ctx, calls[0], cmd)
		return
	}
	cmds := make([]*redis.Cmd, len(calls))
	_, _ = g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range calls {
			cmds[i] = command(ctx, c.Args)
			_ = p.Process(ctx, g.once(cmds[i]))
		}
		return nil
	})
	for i, c := range calls {
		g.replied(ctx, c, cmds[i])
	}
}

// replied fills in what came of a call.
func (g *goRedis) replied(ctx context.Context, c *Call, cmd *redis.Cmd) {
	reply, err := cmd.Text()
	if lacksScript(err) {
		cmd = command(ctx, c.withText())
		_ = g.client.Process(ctx, g.once(cmd))
		reply, err = cmd.Text()
	}
	if err != nil && err == ctx.Err() || errors.Is(err, redis.ErrPoolTimeout) { //nolint:errorlint // unwrapped it comes from the pool
		err = unsent{err}
	}
	c.Reply, c.Err = reply, g.silence.named(explained(g.prefix, c.Key(), err))
	g.doubt(c.Err)
}

// lacksScript reports that a server is new, or that its scripts were flushed.
func lacksScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// once is a command that the cluster client does not repeat, though it follows MOVED and ASK: that takes settings for other
// clients, and for a cluster it is said by the command.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func (g *goRedis) once(cmd *redis.Cmd) redis.Cmder {
	if g.cluster {
		return once{cmd}
	}
	return cmd
}

// doubt has a cluster asked where its nodes are, after an exchange without an answer: perhaps they have other addresses now. Likewise
// after CLUSTERDOWN, with which a node answers that was removed. By itself the client asks once a minute. It asks once at a time, and
// reads the addresses it was given first when no other answers.
func (g *goRedis) doubt(err error) {
	if c, ok := g.client.(*redis.ClusterClient); ok && (redis.IsClusterDownError(err) || !Answered(err) && !errors.Is(err, context.Canceled)) {
		c.ReloadState(context.Background())
	}
}

// Node implements Transport.
func (g *goRedis) Node(ctx context.Context, key string) string {
	c, ok := g.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	primary, err := c.MasterForKey(ctx, key)
	if err != nil {
		return ""
	}
	return primary.Options().Addr
}

// elsewhereTries is how many slots are tried to find one of another node. Even in a cluster of three it is rare that
// all belong to the same node.
const elsewhereTries = 6

// Elsewhere implements Transport.
func (g *goRedis) Elsewhere(ctx context.Context, before string) string {
	var was string
	if before != "" {
		was = g.Node(ctx, before)
	}
	tag := rand.Text()
	for range elsewhereTries {
		if name := g.Node(ctx, tag); name == "" || name != was {
			break
		}
		tag = rand.Text()
	}
	return tag
}

// server returns the client of the server that has the tag, so that we know which server answers. The cluster client
// would pick one at random, and for a subscription the node that the channel's name happens to hash to.
func (g *goRedis) server(ctx context.Context, tag string) redis.UniversalClient {
	if c, ok := g.client.(*redis.ClusterClient); ok {
		if primary, err := c.MasterForKey(ctx, tag); err == nil {
			return primary
		}
	}
	return g.client
}

func command(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(HeadLen) // from which the cluster client knows the slot
	return cmd
}

// Ping implements Transport.
func (g *goRedis) Ping(ctx context.Context, tag string) (time.Duration, error) {
	ctx, cancel := g.waiting(ctx)
	defer cancel()
	client := g.server(ctx, tag)
	start := time.Now()
	err := client.Ping(ctx).Err()
	g.doubt(err)
	return time.Since(start), err
}

// About implements Transport. The ACL may forbid INFO, or redis.conf rename it away. Then only what the client knows is
// returned.
func (g *goRedis) About(ctx context.Context, tag string) (Info, error) {
	ctx, cancel := g.waiting(ctx)
	defer cancel()
	info := Info{Single: !g.cluster}
	text, err := g.server(ctx, tag).Info(ctx).Result()
	if redis.IsPermissionError(err) || lacksCommand(err) {
		return info, nil
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			info.Version = value
		case "maxmemory_policy":
			info.Policy = value
		case "maxmemory":
			info.MaxMemory = value
		case "cluster_enabled":
			info.Single = info.Single && value == "0"
		}
	}
	g.doubt(err)
	return info, g.silence.named(err)
}

// Load implements Transport. The ACL may forbid it. Then the first call of a script stores it, see Do.
func (g *goRedis) Load(ctx context.Context, tag string, scripts ...*Script) {
	_, _ = g.server(ctx, tag).Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range scripts {
			p.ScriptLoad(ctx, s.Text)
		}
		return nil
	})
}

// Close implements Transport.
func (g *goRedis) Close() error {
	err := g.client.Close()
	if g.finder != nil {
		err = errors.Join(err, g.finder.Close())
	}
	return err
}
