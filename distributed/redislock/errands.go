package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// maxWorkers bounds the goroutines of the errands, and with them the connections. One pipeline under way is not
	// enough: while it waits for its answers the next should leave.
	maxWorkers = 4
	// Pauses between repeated tries: the first short, for most failures are a lost connection; then longer, so that
	// a server that comes back is not met by a storm.
	firstPause, longestPause = 5 * time.Millisecond, 250 * time.Millisecond
	shortestTry, longestTry  = 20 * time.Millisecond, time.Second // see tryTimeout
	// closeGrace bounds how long Close waits for a server that does not answer. What is not given back by then runs
	// out by itself.
	closeGrace = 2 * time.Second
)

// errand is a call that nobody stands and waits for: a release, a refill, a claim, the giving back of a grant.
type errand interface {
	// make is called when it is the errand's turn; nil: somebody else has done it.
	make() *call
	// answered gets the answer, or the last error.
	answered(c *call, sent time.Time)
}

// queued is an errand that waits, or is under way.
type queued struct {
	errand
	ttl   time.Duration
	until time.Time     // later it need not be tried
	call  *call         // what make returned
	pause time.Duration // before the next try
}

// errands runs those of one node in the background. What comes while the workers are busy goes out together in one
// pipeline. An errand that failed waits for its next try in nobody's way.
type errands struct {
	b *Backend

	mu      sync.Mutex
	queue   []queued       // guarded by mu
	workers int            // guarded by mu
	closed  bool           // guarded by mu: nothing more is taken
	give    time.Time      // guarded by mu; set by close: when to give up
	wg      sync.WaitGroup // workers, and pauses before a next try
}

// add takes an errand and returns at once; false after close.
func (r *errands) add(e errand, ttl time.Duration, until time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.enqueue(queued{errand: e, ttl: ttl, until: until, pause: firstPause})
	return true
}

// enqueue has a worker take errands. The caller holds mu.
func (r *errands) enqueue(e ...queued) {
	r.queue = append(r.queue, e...)
	if r.workers < maxWorkers {
		r.workers++
		r.wg.Go(r.work) // close waits for it
	}
}

// close waits until all errands have ended, at the latest when it is time to give up.
func (r *errands) close(give time.Time) {
	r.mu.Lock()
	r.closed = true
	r.give = give
	r.mu.Unlock()
	r.wg.Wait()
}

// work runs batches until there are none.
func (r *errands) work() {
	for {
		r.mu.Lock()
		batch := r.queue
		if len(batch) > maxBatch {
			batch = batch[:maxBatch]
		}
		r.queue = r.queue[len(batch):]
		if len(batch) == 0 {
			r.queue = nil
			r.workers--
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		for i := range batch {
			if batch[i].call == nil {
				batch[i].call = batch[i].make()
			}
		}
		batch = slices.DeleteFunc(batch, func(e queued) bool { return e.call == nil })
		if len(batch) > 0 {
			r.later(r.try(batch))
		}
	}
}

// later queues errands again after a pause.
func (r *errands) later(again []queued) {
	if len(again) == 0 {
		return
	}
	var pause time.Duration
	for i := range again {
		pause = max(pause, again[i].pause)
		again[i].pause = min(2*again[i].pause, longestPause)
	}
	r.wg.Add(1) // by a worker, so close still waits
	time.AfterFunc(jittered(pause), func() {
		defer r.wg.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.enqueue(again...)
	})
}

// try asks once and returns what is to be tried again.
func (r *errands) try(batch []queued) []queued {
	calls := make([]*call, len(batch))
	shortest := batch[0].ttl
	for i, e := range batch {
		calls[i] = e.call
		e.call.tries++
		shortest = min(shortest, e.ttl)
	}
	sent := time.Now()
	r.b.tr.do(within(context.Background(), tryTimeout(shortest)), calls...)
	again := batch[:0:0]
	for _, e := range batch {
		if classify(e.call.err) == passing && time.Now().Before(r.limit(e)) {
			again = append(again, e)
		} else {
			e.answered(e.call, sent)
		}
	}
	return again
}

// limit is when an errand is given up.
func (r *errands) limit(e queued) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.give.IsZero() && r.give.Before(e.until) {
		return r.give
	}
	return e.until
}

// tryTimeout is how long one exchange may take before it is repeated: H, for an answer that takes longer leaves too
// little of the claim window; but no less than a busy machine may need, and no more than makes sense in any network,
// for others may wait for the same exchange.
func tryTimeout(ttl time.Duration) time.Duration {
	return min(max(distributed.HeartbeatInterval(ttl), shortestTry), longestTry)
}

// ask runs a call until it is answered, at most for the budget: the scripts answer a repeat like the first time. It
// returns when the question left that was answered. The caller's cancellation is noticed between tries.
func (b *Backend) ask(ctx context.Context, c *call, ttl, budget time.Duration) (sent time.Time, err error) {
	end := time.Now().Add(budget)
	var why error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		sent = time.Now()
		c.tries++
		b.tr.do(within(ctx, tryTimeout(ttl)), c)
		kind := classify(c.err)
		if kind == none {
			return sent, nil
		}
		why = telling(why, c.err)
		if b.ctx.Err() != nil {
			return sent, distributed.ErrClosed
		}
		if ctx.Err() != nil {
			return sent, interrupted(ctx, c, why)
		}
		if kind == permanent || time.Now().After(end) {
			return sent, unavailable(c.script.name, why)
		}
		b.pause(ctx, jittered(pause))
	}
}

// pause sleeps, but not past the end of ctx or of the Backend.
func (b *Backend) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
}
