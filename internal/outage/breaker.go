package outage

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/watch"
)

const (
	// tripAfter is how many failures in a row open the breaker. One or two are a dropped connection or a failover of
	// the server, which the next attempt may find repaired; each costs some caller a time-out, so not many more.
	tripAfter = 3
	// openTime is how long all calls are refused before one is let through as a probe. A probe that was sent just before
	// the backend's return may fail, too; then recovery takes probeTime + openTime + jitter, 1.5 s, which must be below
	// 2 s (rule O2).
	openTime = 500 * time.Millisecond
	// openJitter is the most by which openTime is longer, different for each process, so that they do not all probe at once.
	openJitter = 250 * time.Millisecond
	// probeTime bounds a probe, however long the backend would wait: long for any network, short beside the 2 s above.
	probeTime = 750 * time.Millisecond
	// idlePing is the pause between two pings while callers wait for grants and nothing has failed: a caller that stands
	// in the backend's queue sends nothing by itself that could fail.
	idlePing = time.Second
	// soonPing is the same after a failure, and the least between any two.
	soonPing = 100 * time.Millisecond
)

// Breaker is a circuit breaker around Enter (rule O1). Everything else goes straight through.
//
//	healthy ── failure ──▶ suspect, closed ── tripAfter failures in a row ──▶ open: refused at once
//	   ▲                          │                                            ▲        │ openTime
//	   └─────────── success ──────┴──────────── success ──── half-open ── failure       │
//	                                               ▲  (one probe)                       │
//	                                               └────────────────────────────────────┘
//
// While nothing has failed, a call costs one atomic load: the breaker, its mutex and the clock come in with the first
// failure and are left again with the next success.
type Breaker struct {
	distributed.Backend
	pinger // its mu guards all below but epoch, and is held around every use of breaker
	logger *slog.Logger

	// epoch is even while all is well, odd while something is suspect. It is written under mu. A failure counts only in
	// the epoch its call began in: one that was sent before the backend's return says nothing of the time after it.
	epoch atomic.Uint64

	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	pause   time.Duration // of the open state
	until   time.Time     // the end of the open state
	changes []gobreaker.State
}

// NewBreaker wraps b. Changes of state go to logger.
func NewBreaker(b distributed.Backend, logger *slog.Logger) *Breaker {
	k := &Breaker{Backend: b, logger: logger, pause: openTime + rand.N(openJitter)}
	k.init(k.nextPing, k.pingOnce)
	k.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   1, // probes at a time (rule O2)
		Timeout:       k.pause,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsExcluded:    func(err error) bool { return err == errUnknown },
		OnStateChange: func(_ string, from, to gobreaker.State) { k.changed(from, to) },
	})
	return k
}

// changed notes a change of state. The caller holds mu.
func (k *Breaker) changed(from, to gobreaker.State) {
	switch to {
	case gobreaker.StateOpen:
		k.until = time.Now().Add(k.pause)
		if from == gobreaker.StateClosed {
			close(k.canceled)
		}
	case gobreaker.StateClosed:
		k.canceled = make(chan struct{})
	}
	k.changes = append(k.changes, to)
}

// Adopt implements tenure.Outage: leases stay as they are.
func (k *Breaker) Adopt(l distributed.Lease) distributed.AsyncLease { return watch.Async(l) }

// Degraded is false: with FailClosed no lock is acquired without a lease.
func (k *Breaker) Degraded() bool { return false }

// Enter implements distributed.Backend.
func (k *Breaker) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	epoch := k.epoch.Load()
	if suspect(epoch) {
		return k.enterSuspect(ctx, req)
	}
	lease, place, err := k.Backend.Enter(ctx, req)
	if err != nil {
		switch judge(ctx, err) {
		case errAway:
			k.failed(epoch)
		case errUnknown:
			k.checkAfter(ctx)
		}
	}
	return lease, place, err
}

func suspect(epoch uint64) bool { return epoch%2 == 1 }

// enterSuspect is Enter by way of the breaker.
func (k *Breaker) enterSuspect(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	done, probe, err := k.allow()
	if err != nil {
		return nil, nil, err
	}
	said := errAway // unless the call returns and says something else: a panic must not occupy the probe for ever
	defer func() { k.answered(ctx, done, said) }()
	enter := k.Backend.Enter
	if probe {
		enter = k.probe
	}
	lease, place, err := enter(ctx, req)
	if said = judge(ctx, err); said == errUnknown {
		k.checkAfter(ctx)
	}
	return lease, place, err
}

// probe is an Enter that has to be answered within probeTime.
func (k *Breaker) probe(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	short, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	lease, place, err := k.Backend.Enter(short, req)
	if judge(ctx, err) == errUnknown && ctx.Err() == nil && short.Err() != nil {
		err = fmt.Errorf("%w: no answer within %v: %w", distributed.ErrUnavailable, probeTime, err)
	}
	return lease, place, err
}

// allow asks the breaker. probe: this call is to find out whether the backend is back.
func (k *Breaker) allow() (done func(error), probe bool, err error) {
	k.mu.Lock()
	done, err = k.breaker.Allow()
	switch {
	case err == nil:
		probe = k.breaker.State() == gobreaker.StateHalfOpen
	default:
		err = &Refused{RetryAfter: k.retryAfter()}
	}
	changes := k.take()
	k.mu.Unlock()
	k.log(context.Background(), changes)
	return done, probe, err
}

// retryAfter is until the next probe, or during one, until the one after it. The caller holds mu.
func (k *Breaker) retryAfter() time.Duration {
	if left := time.Until(k.until); left > 0 {
		return left
	}
	return k.pause
}

// answered ends what allow began. A success while the breaker is closed, or that closes it, ends the suspicion.
func (k *Breaker) answered(ctx context.Context, done func(error), said verdict) {
	k.mu.Lock()
	done(said)
	if epoch := k.epoch.Load(); said == nil && suspect(epoch) && k.breaker.State() == gobreaker.StateClosed {
		k.epoch.Store(epoch + 1)
	}
	changes := k.take()
	k.mu.Unlock()
	k.log(ctx, changes)
}

// failed notes the failure of a call that began in a healthy epoch.
func (k *Breaker) failed(epoch uint64) {
	k.mu.Lock()
	if now := k.epoch.Load(); now == epoch {
		k.epoch.Store(epoch + 1)
	} else if now != epoch+1 {
		k.mu.Unlock()
		return // the backend has answered since
	}
	if k.breaker.State() == gobreaker.StateClosed { // else this call would occupy the probe
		if done, err := k.breaker.Allow(); err == nil {
			done(errAway)
		}
	}
	changes := k.take()
	k.mu.Unlock()
	k.log(context.Background(), changes)
}

// nextPing implements pinger.next.
func (k *Breaker) nextPing(sinceLast time.Duration) (pause time.Duration, needed bool) {
	switch {
	case sinceLast < soonPing:
		return soonPing - sinceLast, true
	case !k.soon && !suspect(k.epoch.Load()) && sinceLast < idlePing:
		return idlePing - sinceLast, true
	}
	return 0, k.soon || k.waiting.Load() > 0
}

// pingOnce implements pinger.ping. A failure counts like that of an Enter, and another ping follows until one has opened
// the breaker or is answered.
func (k *Breaker) pingOnce() {
	epoch := k.epoch.Load()
	done := func(error) {}
	if suspect(epoch) {
		var err error
		if done, _, err = k.allow(); err != nil {
			return // open: a caller will probe
		}
	}
	ctx, cancel := context.WithTimeout(k.ctx, probeTime)
	defer cancel()
	said := judgePing(ctx, k.Ping(ctx))
	if k.stopped() {
		said = errUnknown
	}
	switch {
	case suspect(epoch):
		k.answered(k.ctx, done, said)
	case said == errAway:
		k.failed(epoch)
	}
	if said == errAway {
		k.mu.Lock()
		k.checkSoon()
		k.mu.Unlock()
	}
}

// take returns the changes that are not logged yet. The caller holds mu.
func (k *Breaker) take() []gobreaker.State {
	changes := k.changes
	k.changes = nil
	return changes
}

// log logs changes; a handler is foreign code, so not under mu.
func (k *Breaker) log(ctx context.Context, changes []gobreaker.State) {
	for _, to := range changes {
		level, what := slog.LevelDebug, "backend is probed"
		switch to {
		case gobreaker.StateOpen:
			level, what = slog.LevelWarn, "backend is away: locks are refused at once"
		case gobreaker.StateClosed:
			level, what = slog.LevelInfo, "backend is back"
		}
		k.logger.LogAttrs(ctx, level, what, slog.String("state", to.String()), slog.Duration("pause", k.pause))
	}
}
