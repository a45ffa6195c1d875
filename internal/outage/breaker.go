package outage

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// retryAfter is when a refused call is told to try again: after the next few questions of the judge's.
const retryAfter = 500 * time.Millisecond

// Breaker refuses Enter while the backend is away (rule O1). Everything else goes straight through. It lets no call
// through as a probe: the judge asks by itself (rule O2).
type Breaker struct{ policy }

// NewBreaker returns the policy for FailClosed.
func NewBreaker(c Config) *Breaker {
	k := new(Breaker)
	k.init(c, k, noteEvery)
	return k
}

// Stop ends what the policy does by itself and waits for it. The backend stays open.
func (k *Breaker) Stop() { k.stop(k) }

// Adopt implements tenure.Outage: leases stay as they are.
func (k *Breaker) Adopt(l distributed.Lease) distributed.Lease { return l }

// Degraded is false: with FailClosed no lock is acquired without a lease.
func (k *Breaker) Degraded() bool { return false }

// Enter implements distributed.Backend.
func (k *Breaker) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return k.EnterAt(ctx, time.Now(), req)
}

// EnterAt implements tenure.Outage.
func (k *Breaker) EnterAt(ctx context.Context, now time.Time, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if o := k.judge.current.Load(); o != nil && o.isAway() {
		return nil, nil, k.refused(o.cause())
	}
	lease, place, away, err := k.enter(ctx, now, &req)
	if away {
		err = k.refused(k.causeOf(err))
	}
	return lease, place, err
}

// Ask implements tenure.Outage.
func (k *Breaker) Ask(ctx context.Context, question func(context.Context) error) error {
	if o := k.judge.current.Load(); o != nil && o.isAway() {
		return k.refused(o.cause())
	}
	away, err := k.ask(ctx, time.Now(), question)
	if away {
		err = k.refused(k.causeOf(err))
	}
	return err
}

// causeOf is why an Enter failed that the decision has ended.
func (p *policy) causeOf(err error) error {
	if o := p.judge.current.Load(); o != nil {
		return o.cause()
	}
	return distributed.Unavailable("", err)
}

func (k *Breaker) refused(cause error) error {
	k.report.refused.Add(1)
	return &Refused{RetryAfter: retryAfter, Cause: cause}
}

// suspected implements listener.
func (k *Breaker) suspected(*outage) {}

// away implements listener.
func (k *Breaker) away(o *outage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.canceled)
	tells := k.report.begins()
	k.background(func() { k.report.follow(k.ctx, o, tells, "locks are refused at once") })
}

// ended implements listener.
func (k *Breaker) ended(o *outage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.isAway() && o.follows == nil {
		k.canceled = make(chan struct{})
	}
}
