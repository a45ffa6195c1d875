package conn

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/internal/parts"
)

// ErrAstray is why a subscription is given up that is as good as ever, but not where commands go.
var ErrAstray = errors.New("what commands publish does not arrive there. They go to another server now, or the node has left its cluster")

const (
	// busiestProof bounds the proofs when leases are very short.
	busiestProof = 250 * time.Millisecond
	// proofTries are made at once. A pooled connection to a former primary is refused, and replaced.
	proofTries = 4
	// fewAstray subscriptions in a row are replaced without delay, the pauses between further proofs double, mostDoubled times.
	// Where nothing arrives anywhere, subscriptions do not follow each other for ever.
	fewAstray, mostDoubled = 3, 5
	// echoMark begins an echo. No message of a backend begins so.
	echoMark = "echo "
)

// proveScript publishes. A server that would refuse the scripts of locks, as a replica does, refuses it as well. A node of a cluster
// that does not have the key names the one that has.
var proveScript = NewScript("prove", "#!lua flags=allow-oom\nredis.call('PUBLISH', ARGV[1], ARGV[2])\nreturn ''\n")

// proof finds out whether a subscription hears what commands publish (rule R10). Commands follow a DNS name to another server, and
// leave a node that was removed from its cluster. The old server may live on: it answers the pings of the subscription, and is silent
// otherwise. So while messages are expected an echo is published, as the scripts of locks publish, and has to arrive.
type proof struct {
	publish  func(ctx context.Context, channel, key, text string) error // over the connections of commands
	ping     func(ctx context.Context, text string) error               // over the subscription
	expects  func() (channel, key string)                               // see ChannelListener
	heard    func(channel string) bool                                  // the channel is subscribed to
	interval func() time.Duration
	astray   *int // how many subscriptions in a row were; the next one goes on with it

	mu             sync.Mutex
	text           string        // guarded by mu; of the latest echo
	echoed, ponged chan struct{} // guarded by mu; closed when it has arrived, and the pong after it
}

// run returns ErrAstray if an echo does not arrive, another error if the connection breaks, and nil when ctx ends. A server that
// commands do not reach either proves nothing.
func (p *proof) run(ctx context.Context) error {
	for {
		every := max(p.interval(), busiestProof)
		parts.Pause(ctx, every<<min(max(*p.astray-fewAstray, 0), mostDoubled))
		if ctx.Err() != nil {
			return nil
		}
		channel, key := p.expects()
		if !p.heard(channel) {
			continue
		}
		p.mu.Lock()
		p.text, p.echoed, p.ponged = echoMark+rand.Text(), make(chan struct{}), make(chan struct{})
		text, echoed, ponged := p.text, p.echoed, p.ponged
		p.mu.Unlock()
		if !p.published(ctx, channel, key, text) {
			continue
		}
		if err := p.ping(Within(ctx, every), text); err != nil {
			return err
		}
		if arrives(ctx, echoed, ponged, every/2) {
			*p.astray = 0
		} else if ctx.Err() == nil {
			*p.astray++
			return ErrAstray
		}
	}
}

func (p *proof) published(ctx context.Context, channel, key, text string) bool {
	for range proofTries {
		err := p.publish(Within(ctx, LongestTry), channel, key, text)
		if err == nil || !Answered(err) {
			return err == nil
		}
	}
	return false
}

// arrives waits for an echo. The pong was asked for after it was published: a subscription to that server has them in this order, however
// busy all are. Through another node, or a replica, the echo may come later, so some time is given after the pong. Without a pong
// the connection is dead, which the watchdog finds.
func arrives(ctx context.Context, echoed, ponged <-chan struct{}, later time.Duration) bool {
	select {
	case <-echoed:
		return true
	case <-ponged:
	case <-ctx.Done():
		return false
	}
	t := time.NewTimer(later)
	defer t.Stop()
	select {
	case <-echoed:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// echo reports that a message is the latest echo.
func (p *proof) echo(text string) bool { return p.came(text, &p.echoed) }

// pong takes the answer to a ping.
func (p *proof) pong(text string) { p.came(text, &p.ponged) }

// came closes one of the channels, which is guarded by mu, unless it is closed already.
func (p *proof) came(text string, what *chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == "" || text != p.text {
		return false
	}
	select {
	case <-*what:
	default:
		close(*what)
	}
	return true
}
