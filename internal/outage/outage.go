// Package outage is what a Locker does while its backend is away. Local, for LocalOnly, goes on without it. Breaker, for
// FailClosed, makes calls fail fast: a circuit breaker around Enter.
//
//	healthy ── failure ──▶ suspect, closed ── tripAfter failures in a row ──▶ open: refused at once
//	   ▲                          │                                            ▲        │ openTime
//	   └─────────── success ──────┴──────────── success ──── half-open ── failure       │
//	                                               ▲  (one probe)                       │
//	                                               └────────────────────────────────────┘
//
// While nothing has failed there is only one atomic load: the breaker, its mutex and the clock come in with the first
// failure and are left again with the next success.
package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/wllock/wllock/distributed"
)

const (
	// tripAfter is how many failures in a row open the breaker. One or two are a dropped connection or a failover of
	// the server, which the next attempt may find repaired; each costs some caller a time-out, so not many more.
	tripAfter = 3
	// openTime is how long all are refused before one is let through to see. A probe that was sent just before the
	// backend's return may fail, too; then recovery takes probeTime + openTime + jitter, 1.5 s, which is to be below 2 s.
	openTime = 500 * time.Millisecond
	// openJitter is the most by which openTime is longer, different for each process: not all are to probe at once.
	openJitter = 250 * time.Millisecond
	// probeTime bounds a probe, however long the backend would wait: long for any network, short beside the 2 s above.
	probeTime = 750 * time.Millisecond
)

// Refused is the error of a call that was refused without asking the backend. It Is distributed.ErrUnavailable.
type Refused struct {
	RetryAfter time.Duration // until the backend is asked again
}

// Error implements error.
func (r *Refused) Error() string {
	return "backend is away, not asked: " + distributed.ErrUnavailable.Error()
}

// Unwrap says what it is.
func (r *Refused) Unwrap() error { return distributed.ErrUnavailable }

// Breaker is a Backend that refuses Enter while the one it wraps is away. Everything else goes straight through.
type Breaker struct {
	distributed.Backend
	logger *slog.Logger

	// era is even while all is well, odd while something is suspect. It is written under mu. A failure counts only in
	// the era its call began in: one that was sent before the backend's return says nothing of the time after it.
	era atomic.Uint64

	mu      sync.Mutex // guards the rest, and is held around every use of breaker
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	pause   time.Duration // of the open state
	until   time.Time     // the end of the open state
	changes []gobreaker.State

	moot     chan struct{} // closed while the breaker is open, or half so
	watching bool          // the watch runs
	doubted  bool          // it is to look soon
	wake     chan struct{} // holds one; ends the watch's long pause
	waiting  atomic.Int64  // callers that wait for a grant
	ctx      context.Context
	stop     context.CancelFunc // ends the watch; called under mu
	wg       sync.WaitGroup     // the watch; Add under mu, unless ctx has ended
}

// verdict is what the end of an Enter says about the backend, as an error for gobreaker. nil: it works.
type verdict error

var (
	errAway    verdict = errors.New("away")
	errUnknown verdict = errors.New("unknown") // the caller left before the backend answered
)

// NewBreaker wraps b. Changes of state are told to logger.
func NewBreaker(b distributed.Backend, logger *slog.Logger) *Breaker {
	k := &Breaker{Backend: b, logger: logger, pause: openTime + rand.N(openJitter), moot: make(chan struct{}), wake: make(chan struct{}, 1)}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, // probes at a time
		Timeout:     k.pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsExcluded:  func(err error) bool { return err == errUnknown },
		OnStateChange: func(_ string, from, to gobreaker.State) { // under mu
			switch to {
			case gobreaker.StateOpen:
				k.until = time.Now().Add(k.pause)
				if from == gobreaker.StateClosed {
					close(k.moot)
				}
			case gobreaker.StateClosed:
				k.moot = make(chan struct{})
			}
			k.changes = append(k.changes, to)
		},
	})
	return k
}

// Enter implements distributed.Backend.
func (k *Breaker) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	era := k.era.Load()
	if suspect(era) {
		return k.enterSuspect(ctx, req)
	}
	lease, place, err := k.Backend.Enter(ctx, req)
	if err != nil {
		switch judge(ctx, err) {
		case errAway:
			k.failed(era)
		case errUnknown:
			k.unanswered(ctx)
		}
	}
	return lease, place, err
}

func suspect(era uint64) bool { return era%2 == 1 }

// judge says what an answer tells of the backend. A caller whose own time is over tells nothing: it may have been short.
// See unanswered.
func judge(ctx context.Context, err error) verdict {
	switch {
	case err == nil, errors.Is(err, distributed.ErrHeld):
		return nil
	case errors.Is(err, distributed.ErrUnavailable) && ctx.Err() == nil:
		return errAway
	}
	return errUnknown
}

// enterSuspect is Enter by way of the breaker.
func (k *Breaker) enterSuspect(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	done, probe, err := k.allow()
	if err != nil {
		return nil, nil, err
	}
	said := errAway // unless it comes back to say something else: a panic must not keep the probe's place for ever
	defer func() { k.answered(ctx, done, said) }()
	enter := k.Backend.Enter
	if probe {
		enter = k.probe
	}
	lease, place, err := enter(ctx, req)
	if said = judge(ctx, err); said == errUnknown {
		k.unanswered(ctx)
	}
	return lease, place, err
}

// probe is an Enter that has to answer within probeTime.
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
	k.tell(context.Background(), changes)
	return done, probe, err
}

// retryAfter is until the next probe, or while there is one, until the one after it. The caller holds mu.
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
	if era := k.era.Load(); said == nil && suspect(era) && k.breaker.State() == gobreaker.StateClosed {
		k.era.Store(era + 1)
	}
	changes := k.take()
	k.mu.Unlock()
	k.tell(ctx, changes)
}

// failed notes the failure of a call that began in a healthy era.
func (k *Breaker) failed(era uint64) {
	k.mu.Lock()
	if now := k.era.Load(); now == era {
		k.era.Store(era + 1)
	} else if now != era+1 {
		k.mu.Unlock()
		return // the backend has answered since
	}
	if k.breaker.State() == gobreaker.StateClosed { // else this call would take the place of a probe
		if done, err := k.breaker.Allow(); err == nil {
			done(errAway)
		}
	}
	changes := k.take()
	k.mu.Unlock()
	k.tell(context.Background(), changes)
}

// take returns the changes not told of yet. The caller holds mu.
func (k *Breaker) take() []gobreaker.State {
	changes := k.changes
	k.changes = nil
	return changes
}

// tell logs; a handler is foreign code, so not under mu.
func (k *Breaker) tell(ctx context.Context, changes []gobreaker.State) {
	for _, to := range changes {
		level, what := slog.LevelDebug, "backend is asked whether it is back"
		switch to {
		case gobreaker.StateOpen:
			level, what = slog.LevelWarn, "backend is away: locks are refused at once"
		case gobreaker.StateClosed:
			level, what = slog.LevelInfo, "backend is back"
		}
		k.logger.LogAttrs(ctx, level, what, slog.String("state", to.String()), slog.Duration("pause", k.pause))
	}
}
