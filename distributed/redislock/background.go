package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/internal/conn"
)

// maxWorkers bounds the goroutines of the background tasks of one node, and with them the connections. One pipeline
// under way is not enough: while it waits for its replies the next should be sent.
const maxWorkers = 4

// task is a call that nobody is blocked on: a release, a refill, a claim, the return of an unwanted grant.
type task interface {
	// call is called when it is the task's turn; nil: there is nothing left to do.
	call() *conn.Call
	// answered gets the answer, or the last error.
	answered(c *conn.Call, sent time.Time)
}

// patient is a task that is tried again even if it was refused: others wait for what it releases, and a password or an ACL
// rule may come back.
type patient interface{ patient() }

// queuedTask is a task that waits, or is under way.
type queuedTask struct {
	task
	ttl   time.Duration
	until time.Time     // it need not be tried later than this
	sent  *conn.Call    // what call returned
	why   error         // what became of the tries
	pause time.Duration // before the next try
}

// background runs the tasks of one node. What comes while the workers are busy is sent together in one pipeline. A task
// that failed blocks nobody while it waits for its next try.
type background struct {
	s *session

	mu      sync.Mutex
	queue   []queuedTask   // guarded by mu
	workers int            // guarded by mu
	closed  bool           // guarded by mu: no more tasks are taken
	giveUp  time.Time      // guarded by mu; set by close: nothing is tried later than this
	wg      sync.WaitGroup // workers, and pauses before a next try
}

// add takes a task and returns at once; false after close.
func (b *background) add(t task, ttl time.Duration, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.enqueue(queuedTask{task: t, ttl: ttl, until: until, pause: firstPause})
	return true
}

// enqueue has a worker take tasks. The caller holds mu.
func (b *background) enqueue(t ...queuedTask) {
	b.queue = append(b.queue, t...)
	if b.workers < maxWorkers {
		b.workers++
		b.wg.Go(b.work) // close waits for it
	}
}

// close waits until all tasks have ended, at the latest shortly after the time to give up.
func (b *background) close(giveUp time.Time) {
	b.mu.Lock()
	b.closed = true
	b.giveUp = giveUp
	b.mu.Unlock()
	b.wg.Wait()
}

// work runs batches until there are none.
func (b *background) work() {
	for {
		b.mu.Lock()
		batch := b.queue
		if len(batch) > conn.MaxBatch {
			batch = batch[:conn.MaxBatch]
		}
		b.queue = b.queue[len(batch):]
		if len(batch) == 0 {
			b.queue = nil
			b.workers--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		for i := range batch {
			if batch[i].sent == nil {
				batch[i].sent = batch[i].call()
			}
		}
		batch = slices.DeleteFunc(batch, func(t queuedTask) bool { return t.sent == nil })
		if len(batch) > 0 {
			b.retry(b.try(batch))
		}
	}
}

// retry queues tasks again after a pause.
func (b *background) retry(again []queuedTask) {
	if len(again) == 0 {
		return
	}
	var pause time.Duration
	for i := range again {
		pause = max(pause, again[i].pause)
		again[i].pause = min(2*again[i].pause, longestPause)
	}
	b.wg.Add(1) // by a worker, so close still waits
	time.AfterFunc(jittered(pause), func() {
		defer b.wg.Done()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.enqueue(again...)
	})
}

// try sends the calls once and returns the tasks to be tried again.
func (b *background) try(batch []queuedTask) []queuedTask {
	calls := make([]*conn.Call, len(batch))
	shortest := batch[0].ttl
	for i, t := range batch {
		calls[i] = t.sent
		t.sent.Tries++
		shortest = min(shortest, t.ttl)
	}
	sent := time.Now()
	b.s.try(context.Background(), shortest, calls...)
	again := batch[:0:0]
	for _, t := range batch {
		kind := conn.Classify(t.sent.Err)
		if kind != conn.None {
			t.why = conn.MoreTelling(t.why, t.sent.Err)
		}
		if b.worthwhile(t, kind) {
			again = append(again, t)
			continue
		}
		if kind != conn.None {
			t.sent.Err = t.why
		}
		t.answered(t.sent, sent)
	}
	return again
}

// worthwhile reports that a task whose try failed so is to be tried again.
func (b *background) worthwhile(t queuedTask, kind conn.Failure) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	closing := !b.giveUp.IsZero()
	if kind == conn.Permanent {
		if _, ok := t.task.(patient); !ok || closing {
			return false
		}
	}
	now := time.Now()
	return kind != conn.None && now.Before(t.until) && (!closing || now.Before(b.giveUp))
}

// leave releases whatever an attempt has at the server. If that fails, a lease expires within its claim window, and a place
// is skipped at its turn after as long.
func (b *background) leave(w *wireAttempt, ttl time.Duration) {
	b.add((*leaveTask)(w), ttl, time.Now().Add(ttl))
}

type leaveTask wireAttempt

func (t *leaveTask) call() *conn.Call               { return (*wireAttempt)(t).leave() }
func (t *leaveTask) answered(*conn.Call, time.Time) {}
func (t *leaveTask) patient()                       {}
