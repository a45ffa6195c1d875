package conn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/keyless"
)

var errSilent = keyless.Errorf("the subscription's connection is silent")

// mostAskedAgain bounds the channels that are asked for again at a time.
const mostAskedAgain = 16

// watchdog sends all that a subscription sends: it asks for the channels, pings every interval, and closes the connection after two
// without a sign of life (rule R10). A half-open connection is silent for ever, and go-redis would wait for ever.
type watchdog struct {
	ps       *redis.PubSub
	channels *Channels
	interval func() time.Duration
	last     atomic.Int64 // when something came last, in Unix nanoseconds

	known int       // how many of the channels were asked for; only the dog's goroutine has it, and before that whoever starts it
	asked time.Time // when it has last asked for those that were refused; likewise

	// The server answers in the order of the questions, and a refusal does not name its channel: it is that of the first question
	// without an answer. A question is noted before it is sent, by the dog; whoever receives takes it out.
	mu       sync.Mutex
	open     []string // guarded by mu; questions without an answer
	declined []string // guarded by mu; channels that were refused
	heard    []string // guarded by mu; channels that are subscribed to
	why      error    // guarded by mu; the connection was closed because of it; nil: it was not, or it broke
}

// seen notes a sign of life.
func (d *watchdog) seen() { d.last.Store(time.Now().UnixNano()) }

// subscribe asks for the channels that were not asked for yet, each by itself: a question for several is refused as a whole.
func (d *watchdog) subscribe(ctx context.Context) error {
	fresh := d.channels.from(d.known)
	d.known += len(fresh)
	return d.ask(ctx, fresh)
}

// askAgain asks for the channels that were refused, once in a while: the right to them may have been given meanwhile.
func (d *watchdog) askAgain(ctx context.Context) error {
	if time.Since(d.asked) < longListenPause {
		return nil
	}
	d.asked = time.Now()
	d.mu.Lock()
	n := min(len(d.declined), mostAskedAgain)
	again := d.declined[:n]
	d.declined = d.declined[n:]
	d.mu.Unlock()
	return d.ask(ctx, again)
}

func (d *watchdog) ask(ctx context.Context, channels []string) error {
	for _, channel := range channels {
		d.mu.Lock()
		d.open = append(d.open, channel)
		d.mu.Unlock()
		if err := d.ps.Subscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// accepted takes the question out that was answered.
func (d *watchdog) accepted(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.open, channel); i >= 0 {
		d.open = slices.Delete(d.open, i, i+1)
		d.heard = append(d.heard, channel)
	}
}

// hears reports that a channel is subscribed to.
func (d *watchdog) hears(channel string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.heard, channel)
}

// end closes the connection because of an error; nil: because nothing is to be found out any more.
func (d *watchdog) end(why error) {
	d.mu.Lock()
	if d.why == nil {
		d.why = why
	}
	d.mu.Unlock()
	_ = d.ps.Close()
}

func (d *watchdog) reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

// refused returns the channel that an error is the answer for; false: it is no answer, or to no such question.
func (d *watchdog) refused(err error) (channel string, ok bool) {
	if !Answered(err) {
		return "", false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) == 0 {
		return "", false
	}
	d.seen()
	channel, d.open = d.open[0], d.open[1:]
	d.declined = append(d.declined, channel)
	return channel, true
}

// run ends when ctx does, or with the connection; either way the subscription is closed by then.
func (d *watchdog) run(ctx context.Context) {
	defer d.end(nil)
	for {
		every := d.interval()
		next := time.NewTimer(every)
		select {
		case <-d.channels.more:
			next.Stop()
			if d.subscribe(ctx) != nil {
				return
			}
			continue // the answer is a sign of life
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
		if time.Since(time.Unix(0, d.last.Load())) > 2*every-every/4 { // checked each interval: a quarter allows for rounding
			d.end(errSilent)
			return
		}
		if d.askAgain(ctx) != nil || d.ps.Ping(Within(ctx, every)) != nil {
			return
		}
	}
}
