package outage

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// calmPing is the pause between two looks at a backend that callers wait at and that may be well: whoever stands in
	// its queue sends nothing by itself that tells.
	calmPing = time.Second
	// doubtPing is the same after a failure.
	doubtPing = 100 * time.Millisecond
)

// Adopt implements tenure.Outage: leases stay as they are.
func (k *Breaker) Adopt(l distributed.Lease) distributed.Watched { return distributed.AsWatched(l) }

// Await implements tenure.Outage: whoever waits for a grant is called away when the breaker opens, and refused like the
// others. While anybody waits, the watch pings the backend.
func (k *Breaker) Await() (moot <-chan struct{}) {
	k.waiting.Add(1) // before the watch, under mu, looks at it for the last time; or else it is not running below
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.watching && k.ctx.Err() == nil {
		k.watching = true
		k.wg.Go(k.watch)
	}
	return k.moot
}

// Awaited implements tenure.Outage.
func (k *Breaker) Awaited() { k.waiting.Add(-1) }

// Close ends the watch and waits for it. It does not close the backend.
func (k *Breaker) Close() error {
	k.mu.Lock()
	k.stop() // under mu: either Await finds it, or Wait the goroutine
	k.mu.Unlock()
	k.wg.Wait()
	return nil
}

// watch lives while callers wait for grants, and a look longer.
func (k *Breaker) watch() {
	for {
		pause := calmPing
		if suspect(k.era.Load()) {
			pause = doubtPing
		}
		select {
		case <-time.After(pause):
		case <-k.ctx.Done():
			return
		}
		k.mu.Lock()
		if k.waiting.Load() == 0 {
			k.watching = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		k.look()
	}
}

// look pings the backend; a failure counts like that of an Enter.
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
}
