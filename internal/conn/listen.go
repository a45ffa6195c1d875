package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
)

// Pauses between attempts to subscribe. They are short because without messages only heartbeats find grants.
const (
	firstListenPause = 20 * time.Millisecond
	longListenPause  = time.Second
)

// Channels are what a subscription listens to. They only become more, at any time.
type Channels struct {
	more chan struct{} // capacity 1: there is one more, of which the subscription perhaps does not know

	mu  sync.Mutex
	all []string // guarded by mu; what is in it stays
}

// NewChannels returns these.
func NewChannels(names ...string) *Channels {
	return &Channels{more: make(chan struct{}, 1), all: names}
}

// Add adds one that is not among them yet.
func (c *Channels) Add(name string) {
	c.mu.Lock()
	c.all = append(c.all, name)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// from returns those behind the first n.
func (c *Channels) from(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[n:]
}

// some waits until there is one; false: ctx has ended.
func (c *Channels) some(ctx context.Context) bool {
	for len(c.from(0)) == 0 {
		select {
		case <-c.more:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// ChannelListener receives the events of a subscription. Calls come one after the other and must not block.
type ChannelListener interface {
	OnMessage(channel, message string)
	OnSubscribe(channel string)          // from now on its messages arrive. Earlier ones may be lost
	OnRefused(channel string, err error) // the server does not let us listen. It is asked again
	OnDisconnect(err error)              // the subscription failed or broke, with all channels
	// Expects names a lock whose messages are expected now, and the channel that they come on, or "" if there is none. It is called at
	// any time.
	Expects() (channel, key string)
}

// Pace is how often a subscription is checked: a half-open connection is to be noticed within two heartbeats of the shortest TTL.
type Pace struct{ shortest atomic.Int64 } // in ns

const (
	// idlePing is how often before any TTL is known, and at least. busiestPing bounds the pings when leases are very short.
	idlePing, busiestPing = time.Second, 25 * time.Millisecond
	// syncSpread is the time given to each waiting key after a gap in the messages, so that they do not all ask at once.
	syncSpread = 50 * time.Microsecond
	// OrphanTTL is assumed of what is granted to an attempt that is not known any more.
	OrphanTTL = 5 * time.Second
)

// Note takes the TTL of a request.
func (p *Pace) Note(ttl time.Duration) {
	for {
		old := p.shortest.Load()
		if (old != 0 && old <= int64(ttl)) || p.shortest.CompareAndSwap(old, int64(ttl)) {
			return
		}
	}
}

// Interval is the time between two pings.
func (p *Pace) Interval() time.Duration {
	ttl := time.Duration(p.shortest.Load())
	if ttl == 0 {
		return idlePing
	}
	return min(max(distributed.HeartbeatInterval(ttl), busiestPing), idlePing)
}

// SyncPause is when one of so many places asks the server after a gap in the messages.
func SyncPause(places int, ttl time.Duration) time.Duration {
	return rand.N(min(syncSpread*time.Duration(places), distributed.HeartbeatInterval(ttl)/2) + 1)
}

// ListenTo implements Transport.
func (g *goRedis) ListenTo(ctx context.Context, channels *Channels, interval func() time.Duration, l ChannelListener) {
	var following sync.WaitGroup
	defer following.Wait()
	if g.primary != nil {
		following.Go(func() { g.primary.follow(ctx, interval) })
	}
	pause := firstListenPause
	var tag string
	var astray int
	for channels.some(ctx) && ctx.Err() == nil {
		began := time.Now()
		tag = g.Elsewhere(ctx, tag) // in a cluster every node passes on what is published
		l.OnDisconnect(explained(g.prefix, "", g.subscription(ctx, tag, channels, interval, &astray, l)))
		if time.Since(began) > longListenPause {
			pause = firstListenPause
		}
		parts.Pause(ctx, pause)
		pause = min(2*pause, longListenPause)
	}
}

// subscription serves one connection until it breaks. go-redis would replace a broken connection by itself and not
// report what was missed; here every break ends the subscription, and after OnSubscribe messages are complete.
func (g *goRedis) subscription(ctx context.Context, tag string, channels *Channels, interval func() time.Duration, astray *int,
	l ChannelListener,
) error {
	ps := g.server(ctx, tag).Subscribe(ctx)
	// Dog and proof close the connection, which ends Receive below. They are waited for, so they never outlive this call.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dog := &watchdog{ps: ps, channels: channels, interval: interval}
	dog.seen()
	var where string
	if err := dog.subscribe(context.WithValue(ctx, whereKey{}, &where)); err != nil {
		_ = ps.Close()
		return err
	}
	proof := &proof{
		publish: g.publish, ping: func(ctx context.Context, text string) error { return ps.Ping(ctx, text) },
		expects: l.Expects, heard: dog.hears, interval: interval, astray: astray,
	}
	var beside sync.WaitGroup
	beside.Go(func() { dog.run(ctx) })
	beside.Go(func() { dog.end(proof.run(ctx)) })
	defer func() {
		cancel()
		beside.Wait()
	}()
	for {
		msg, err := ps.Receive(ctx)
		if err != nil {
			if why := dog.reason(); errors.Is(why, ErrAstray) {
				return fmt.Errorf("subscribed at %s: %w", where, why)
			} else if why != nil {
				return why
			}
			channel, ok := dog.refused(err)
			if !ok {
				return err
			}
			l.OnRefused(channel, explained(g.prefix, channel, err))
			continue
		}
		dog.seen()
		switch m := msg.(type) {
		case *redis.Subscription:
			dog.accepted(m.Channel)
			l.OnSubscribe(m.Channel)
		case *redis.Pong:
			proof.pong(m.Payload)
		case *redis.Message:
			if !proof.echo(m.Payload) {
				l.OnMessage(m.Channel, m.Payload)
			}
		}
	}
}

// publish sends a text to a channel the way that the scripts of the lock with this key do.
func (g *goRedis) publish(ctx context.Context, channel, key, text string) error {
	c := NewCall(proveScript, []string{key}, channel, text)
	c.Args[0], c.Args[1] = "eval", proveScript.Text
	g.Do(ctx, c)
	return c.Err
}
