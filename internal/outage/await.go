package outage

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/watch"
)

const (
	// calmPing is the pause between two looks at a backend that callers wait at and that may be well: whoever stands in
	// its queue sends nothing by itself that tells.
	calmPing = time.Second
	// doubtPing is the same after a failure, and while the backend is doubted.
	doubtPing = 100 * time.Millisecond
)

// unanswered is called when a caller's time was over before its Enter was answered. That may be the fault of either, so
// the watch looks: callers who never wait as long as the backend takes to fail would not learn of an outage.
func (k *Breaker) unanswered(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubt()
}

// doubt has the watch look soon. The caller holds mu.
func (k *Breaker) doubt() {
	k.doubted = true
	k.begin()
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// begin starts the watch unless it runs. The caller holds mu.
func (k *Breaker) begin() {
	if !k.watching && k.ctx.Err() == nil {
		k.watching = true
		k.wg.Go(k.watch)
	}
}

// Adopt implements tenure.Outage: leases stay as they are.
func (k *Breaker) Adopt(l distributed.Lease) distributed.AsyncLease { return watch.Async(l) }

// Await implements tenure.Outage: whoever waits for a grant is called away when the breaker opens, and refused like the
// others. While anybody waits, the watch pings the backend.
func (k *Breaker) Await() (moot <-chan struct{}) {
	k.waiting.Add(1) // before the watch, under mu, looks at it for the last time; or else it is not running below
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begin()
	return k.moot
}

// Awaited implements tenure.Outage.
func (k *Breaker) Awaited() { k.waiting.Add(-1) }

// Degraded is false: with FailClosed no lock is acquired without a lease.
func (k *Breaker) Degraded() bool { return false }

// Stop ends the background work and waits for it. The backend stays open.
func (k *Breaker) Stop() {
	k.mu.Lock()
	k.stop() // under mu: either Await finds it, or Wait the goroutine
	k.mu.Unlock()
	k.wg.Wait()
}

// watch lives while callers wait for grants, or the backend is doubted, and a pause longer.
func (k *Breaker) watch() {
	for k.pauses() && k.needed() {
		k.look()
	}
}

// pauses waits until it is time to look; false: the Breaker is closed.
func (k *Breaker) pauses() bool {
	select {
	case <-time.After(doubtPing):
	case <-k.ctx.Done():
		return false
	}
	k.mu.Lock()
	soon := k.doubted || suspect(k.era.Load())
	k.mu.Unlock()
	if soon {
		return true
	}
	select {
	case <-time.After(calmPing - doubtPing):
	case <-k.wake: // at worst one of a doubt that was looked at already
	case <-k.ctx.Done():
		return false
	}
	return true
}

// needed takes the doubt, to look at it. With false the watch ends; whoever needs it has said so under mu before, or will
// find that it does not run.
func (k *Breaker) needed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watching = k.doubted || k.waiting.Load() > 0
	k.doubted = false
	return k.watching
}

// look pings the backend; a failure counts like that of an Enter, and is looked into until it has opened the breaker or
// was the last.
func (k *Breaker) look() {
	era := k.era.Load()
	done := func(error) {}
	if suspect(era) {
		var err error
		if done, _, err = k.allow(); err != nil {
			return // open: it is for a caller to find out
		}
	}
	ctx, cancel := context.WithTimeout(k.ctx, probeTime)
	defer cancel()
	err := k.Ping(ctx)
	said := verdict(nil)
	switch {
	case k.ctx.Err() != nil, errors.Is(err, distributed.ErrClosed):
		said = errUnknown
	case err != nil:
		said = errAway
	}
	switch {
	case suspect(era):
		k.answered(k.ctx, done, said)
	case said == errAway:
		k.failed(era)
	}
	if said == errAway {
		k.mu.Lock()
		k.doubt()
		k.mu.Unlock()
	}
}
