package simulated

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testseed"
)

// fate is what becomes of a request.
type fate string

const (
	answered   fate = "answered"
	lost       fate = "lost"       // it does not arrive
	unanswered fate = "unanswered" // it is carried out, and its answer is lost
	late       fate = "late"       // it is carried out after its sender has given up
	doubled    fate = "doubled"    // it is carried out once more, later
	slow       fate = "slow"       // its answer takes up to half a claim window
	refused    fate = "refused"    // the service answers that it does not do it
	unreached  fate = "unreached"  // there is no connection
)

// drawn are the fates of bad weather.
var drawn = []fate{lost, unanswered, late, doubled, slow, refused, unreached}

const (
	longestTrip = leaseTTL / 400 // of a message
	silence     = leaseTTL / 20  // after which a request counts as unanswered
	oneIn       = 4              // requests of a bad day meets a fate of its own
)

var (
	errSilent    = distributed.Unavailable("simulated", errors.New("no answer"))
	errRefused   = distributed.Unavailable("simulated", errors.New("refused"), distributed.ErrRefused)
	errUnreached = distributed.Unavailable("simulated", errors.New("unreached"), distributed.ErrUnreached)
)

// network is the way of one process to the service.
type network struct {
	seen *seen
	rnd  *rand.Rand     // may be used by all
	late sync.WaitGroup // requests that come late, and what is repeated
	flaw string

	mu        sync.Mutex // guards all below
	bad       bool       // weather
	away      bool       // the service is
	cut       time.Time  // until then nothing arrives
	still     time.Time  // until then the process stands still
	dead      bool
	ended     bool      // the schedule is over: a dead process finds no service at once
	trouble   time.Time // when an exchange last failed
	failing   time.Time // the first failure since the last answer
	observers map[int]func(distributed.Exchange)
	observed  int
}

func newNetwork(seed1, seed2 uint64, s *seen) *network {
	return &network{seen: s, rnd: testseed.Shared(seed1, seed2), observers: map[int]func(distributed.Exchange){}}
}

func (n *network) with(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// below draws a time.
func (n *network) below(d time.Duration) time.Duration {
	return 1 + time.Duration(n.rnd.Int64N(int64(d)))
}

// wake returns when the process does not stand still.
func (n *network) wake() {
	for {
		var still time.Duration
		n.with(func() { still = time.Until(n.still) })
		if still <= 0 {
			return
		}
		time.Sleep(still)
	}
}

// isDead reports whether the process has died.
func (n *network) isDead() (is bool) {
	n.with(func() { is = n.dead })
	return is
}

// isBad reports whether the weather is.
func (n *network) isBad() (is bool) {
	n.with(func() { is = n.bad })
	return is
}

// isCut reports whether nothing arrives for so long that leases are not renewed.
func (n *network) isCut() (is bool) {
	n.with(func() { is = n.dead || time.Now().Before(n.cut) || time.Now().Before(n.still) })
	return is
}

// draw draws the fate of a request. What the service cannot tell from another request is not doubled.
func (n *network) draw(kind string) (f fate) {
	n.with(func() {
		switch {
		case n.ended:
			f = unreached
			return
		case n.dead, n.away, time.Now().Before(n.cut):
			f = lost
		case n.bad && n.rnd.IntN(oneIn) == 0:
			if f = drawn[n.rnd.IntN(len(drawn))]; f == doubled && strings.HasPrefix(kind, "enter") {
				f = answered
			}
		default:
			f = answered
		}
		n.seen.note(kind + ": " + string(f))
	})
	return f
}

// pause waits. It reports false if ctx has ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// exchange sends a request. do is called when it is carried out, which may be never, after exchange has returned, or twice. once tells whether the
// sender gets its answer, if nothing more goes wrong. What do returns is that answer.
func (n *network) exchange(ctx context.Context, kind string, do func(once bool) error) error {
	n.wake()
	f, sent := n.draw(kind), time.Now()
	if n.flaw == flawDeaf {
		ctx = context.WithoutCancel(ctx)
	}
	err := n.send(ctx, f, do)
	n.wake()
	now := time.Now()
	x := distributed.Exchange{Sent: sent, RTT: max(now.Sub(sent), 1)}
	if errors.Is(err, distributed.ErrUnavailable) {
		x.Err = err
	}
	switch {
	case ctx.Err() == nil || err == nil:
		n.report(x)
	case kind == "echo": // the judge of outages has waited long enough
		n.failed()
	default: // its sender did not wait for it, which says nothing of the service
		n.with(func() { n.trouble = now })
	}
	return err
}

func (n *network) send(ctx context.Context, f fate, do func(once bool) error) (err error) {
	there, back := n.below(longestTrip), n.below(longestTrip)
	if f == late || f == doubled {
		n.after(there+n.below(leaseTTL/4), do)
	}
	if f == unreached {
		return errUnreached
	}
	if !pause(ctx, there) {
		if f != lost && f != refused && f != late {
			n.after(0, do) // it was on its way
		}
		return errors.Join(errSilent, ctx.Err())
	}
	switch f {
	case answered, doubled, slow:
		err = do(true)
	case unanswered:
		_ = do(false)
	case refused:
		err = errRefused
	}
	switch f {
	case lost, late, unanswered:
		if !pause(ctx, silence) {
			return errors.Join(errSilent, ctx.Err())
		}
		return errSilent
	case slow:
		back += n.below(distributed.ClaimWindow(leaseTTL) / 2)
	}
	if !pause(ctx, back) {
		return errors.Join(errSilent, ctx.Err())
	}
	return err
}

// after carries a request out later.
func (n *network) after(d time.Duration, do func(once bool) error) {
	n.late.Go(func() {
		time.Sleep(d)
		_ = do(false)
	})
}

// repeat sends a request in the background until it is answered, or that is of no use any more.
func (n *network) repeat(kind string, until time.Time, do func(once bool) error) {
	n.late.Go(func() {
		for errors.Is(n.exchange(context.Background(), kind, do), distributed.ErrUnavailable) {
			if time.Sleep(silence); time.Now().After(until) || n.isDead() {
				return
			}
		}
	})
}

// report tells the observers of an exchange, and notes it for the judge.
func (n *network) report(x distributed.Exchange) {
	var told []func(distributed.Exchange)
	n.with(func() {
		switch now := time.Now(); {
		case x.Err == nil, errors.Is(x.Err, distributed.ErrRefused):
			n.failing = time.Time{}
			if x.Err != nil {
				n.trouble = now
			}
		default:
			n.fails(now)
		}
		for i := range n.observed {
			if f := n.observers[i]; f != nil {
				told = append(told, f)
			}
		}
	})
	for _, f := range told {
		f(x)
	}
}

// failed notes an exchange without an answer.
func (n *network) failed() { n.with(func() { n.fails(time.Now()) }) }

// fails is failed for one that holds mu.
func (n *network) fails(now time.Time) {
	n.trouble = now
	if n.failing.IsZero() {
		n.failing = now
	}
}

// Observe implements distributed.Observable.
func (n *network) Observe(f func(distributed.Exchange)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := n.observed
	n.observed++
	n.observers[i] = f
	return func() { n.with(func() { delete(n.observers, i) }) }
}
