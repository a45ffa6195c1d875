package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// goRedis is the transport for real servers.
type goRedis struct {
	client  redis.UniversalClient // our own: nobody else closes it
	cluster bool
	primary *primary      // what client connects to; nil without sentinels
	finder  *redis.Client // whose dialer asks the sentinels, if it is ours to close
}

// do implements transport. A lone call takes the plain way; several share a pipeline, which the cluster client splits
// by node.
func (g *goRedis) do(ctx context.Context, calls ...*call) {
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = command(ctx, c.wire)
	}
	if len(calls) == 1 {
		_ = g.client.Process(ctx, cmds[0]) // each command has its own error
	} else {
		_, _ = g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, cmd := range cmds {
				_ = p.Process(ctx, cmd)
			}
			return nil
		})
	}
	for i, c := range calls {
		c.reply, c.err = cmds[i].Text()
		if c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT") { // a new server, or SCRIPT FLUSH; EVAL stores it as well
			cmd := command(ctx, append([]any{"eval", c.script.text}, c.wire[2:]...))
			_ = g.client.Process(ctx, cmd)
			c.reply, c.err = cmd.Text()
		}
	}
}

// node implements transport.
func (g *goRedis) node(ctx context.Context, key string) string {
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

// elsewhere implements transport.
func (g *goRedis) elsewhere(ctx context.Context, before string) string {
	var was string
	if before != "" {
		was = g.node(ctx, before)
	}
	tag := rand.Text()
	for range elsewhereTries {
		if name := g.node(ctx, tag); name == "" || name != was {
			break
		}
		tag = rand.Text()
	}
	return tag
}

// elsewhereTries is how many slots are looked at to find one of another node. That all are with the same one is rare even
// in a cluster of three.
const elsewhereTries = 6

// server returns the client of the server that has the tag. What is asked of any server is asked of one that we know: the
// cluster client takes one at random, and a subscription to the node that its channel's name happens to name.
func (g *goRedis) server(ctx context.Context, tag string) redis.UniversalClient {
	if c, ok := g.client.(*redis.ClusterClient); ok {
		if primary, err := c.MasterForKey(ctx, tag); err == nil {
			return primary
		}
	}
	return g.client
}

func command(ctx context.Context, wire []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, wire...)
	cmd.SetFirstKeyPos(wireHead) // which tells the cluster client the slot
	return cmd
}

// ping implements transport.
func (g *goRedis) ping(ctx context.Context, tag string) (time.Duration, error) {
	client := g.server(ctx, tag)
	start := time.Now()
	err := client.Ping(ctx).Err()
	return time.Since(start), err
}

// about implements transport. INFO may be forbidden to our user; then only what the client knows is told.
func (g *goRedis) about(ctx context.Context, tag string) (serverInfo, error) {
	info := serverInfo{single: !g.cluster}
	text, err := g.server(ctx, tag).Info(ctx).Result()
	if redis.IsPermissionError(err) {
		return info, nil
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			info.version = value
		case "maxmemory_policy":
			info.policy = value
		case "maxmemory":
			info.memory = value
		case "cluster_enabled":
			info.single = info.single && value == "0"
		}
	}
	return info, err
}

// close implements transport.
func (g *goRedis) close() error {
	err := g.client.Close()
	if g.finder != nil {
		err = errors.Join(err, g.finder.Close())
	}
	return err
}

// pauses between attempts to subscribe; short, for heartbeats alone find grants while we are deaf.
const (
	firstListenPause = 20 * time.Millisecond
	longListenPause  = time.Second
)

// listen implements transport.
func (g *goRedis) listen(ctx context.Context, channel string, interval func() time.Duration, e ears) {
	var following sync.WaitGroup
	defer following.Wait()
	if g.primary != nil {
		following.Go(func() { g.primary.follow(ctx, interval) })
	}
	pause := firstListenPause
	var tag string
	for ctx.Err() == nil {
		began := time.Now()
		tag = g.elsewhere(ctx, tag) // in a cluster every node passes on what is published
		e.deafened(g.subscription(ctx, tag, channel, interval, e))
		if time.Since(began) > longListenPause {
			pause = firstListenPause
		}
		wait(ctx, pause)
		pause = min(2*pause, longListenPause)
	}
}

var errSilent = errors.New("the subscription's connection is silent")

// subscription serves one connection until it breaks. The client would replace it by itself and say nothing of what
// was missed; every break ends here instead, and what comes after subscribed is complete.
func (g *goRedis) subscription(ctx context.Context, tag, channel string, interval func() time.Duration, e ears) error {
	ps := g.server(ctx, tag).Subscribe(ctx)
	// The dog closes the connection, which ends Receive below. It is waited for, so it never outlives this call.
	ctx, cancel := context.WithCancel(ctx)
	dog := &watchdog{ps: ps, interval: interval, done: make(chan struct{})}
	dog.hear()
	if err := ps.Subscribe(ctx, channel); err != nil {
		cancel()
		_ = ps.Close()
		return err
	}
	go dog.run(ctx)
	defer func() {
		cancel()
		<-dog.done
	}()
	for {
		msg, err := ps.Receive(ctx)
		if err != nil {
			if dog.bitten.Load() {
				return errSilent
			}
			return err
		}
		dog.hear()
		switch m := msg.(type) {
		case *redis.Subscription:
			e.subscribed()
		case *redis.Message:
			e.heard(m.Payload)
		}
	}
}
