package conn

import (
	"context"
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
	for channels.some(ctx) && ctx.Err() == nil {
		began := time.Now()
		tag = g.Elsewhere(ctx, tag) // in a cluster every node passes on what is published
		l.OnDisconnect(explained(g.prefix, "", g.subscription(ctx, tag, channels, interval, l)))
		if time.Since(began) > longListenPause {
			pause = firstListenPause
		}
		parts.Pause(ctx, pause)
		pause = min(2*pause, longListenPause)
	}
}

// subscription serves one connection until it breaks. go-redis would replace a broken connection by itself and not
// report what was missed; here every break ends the subscription, and after OnSubscribe messages are complete.
func (g *goRedis) subscription(ctx context.Context, tag string, channels *Channels, interval func() time.Duration, l ChannelListener) error {
	ps := g.server(ctx, tag).Subscribe(ctx)
	// The dog closes the connection, which ends Receive below. It is waited for, so it never outlives this call.
	ctx, cancel := context.WithCancel(ctx)
	dog := &watchdog{ps: ps, channels: channels, interval: interval, done: make(chan struct{})}
	dog.seen()
	if err := dog.subscribe(ctx); err != nil {
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
			if dog.silent.Load() {
				return errSilent
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
		case *redis.Message:
			l.OnMessage(m.Channel, m.Payload)
		}
	}
}
