package wllock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// maxIdleWorkers bounds the goroutines that wait for work: enough for the hot keys of a process.
	maxIdleWorkers = 8
	// workerPatience is for how long an idle worker stays. It spans the pauses between the orders of a shop.
	workerPatience = time.Second
)

// workers run batch functions, each batch on one goroutine, which its hold owns: the callers wait for the end of the function, and
// Close waits for all. A worker that is done stays for a while, because its stack has grown: on a new goroutine it would grow anew
// for every batch, which costs a lone caller of a database up to a fifth of its time.
type workers struct {
	mu    sync.Mutex
	idle  []*worker     // guarded by mu; the last one has been idle for the shortest time
	count int           // goroutines; guarded by mu
	ended chan struct{} // made by Close, closed when there are none any more; guarded by mu
	told  sync.Pool     // of chan struct{}: where a leader waits. The leader gives it back, when nobody sends there any more
}

// worker is a goroutine and the batch that it runs.
type worker struct {
	of     *workers
	wake   chan struct{} // receives a value when there is a batch; closed by Close
	timer  *time.Timer
	active bool // the goroutine runs

	entered entered // of the leader
	leader  *batchCaller
	size    int
}

// get returns a worker for one batch.
func (p *workers) get() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		return w
	}
	return &worker{of: p, wake: make(chan struct{}, 1)}
}

// lead makes c, which has the lock, the leader of a batch, and starts that.
func (w *worker) lead(e entered, c *batchCaller, max int) {
	told, ok := w.of.told.Get().(chan struct{})
	if !ok {
		told = make(chan struct{}, 1)
	}
	c.told = told
	w.entered, w.leader, w.size = e, c, c.hold.Lead(max, told)
	if w.active {
		w.wake <- struct{}{}
		return
	}
	w.active = true
	w.of.start(w)
}

// work runs batches until no more come for a while. If a function ends the goroutine, the worker goes with it.
func (w *worker) work() {
	defer w.of.end()
	for {
		w.serve()
		if !w.rest() {
			return
		}
	}
}

// serve runs one batch. Both tiers are released before the callers are told, however the function ends.
func (w *worker) serve() {
	leader, returned := w.leader, false
	var end ending
	defer func() {
		if !returned { // rule B10
			end.exited = true
			if v := recover(); v != nil {
				end = ending{panicked: newBatchPanic(v)}
			}
		}
		w.entered, w.leader = entered{}, nil // an idle worker keeps no item
		if leader.tell(end) == 0 && end.panicked != nil {
			panic(end.panicked) // nobody else would notice
		}
	}()
	end.err = w.run(leader)
	returned = true
}

// run runs the function, and releases the lock.
func (w *worker) run(leader *batchCaller) error {
	ctx, span := leader.began(w.size)
	failed := true
	defer func() { leader.hold.Group().Observer.EndedBatch(span, failed) }()
	w.entered.ctx = ctx
	err := w.entered.run(func(ctx context.Context) error { return leader.Owner.(batchWork).work(ctx, w.size) })
	failed = err != nil
	return closedBy(leader.hold, err)
}

// rest waits for the next batch. false: there will be none.
func (w *worker) rest() bool {
	if !w.of.park(w) {
		return false
	}
	if w.timer == nil {
		w.timer = time.NewTimer(workerPatience)
	} else {
		w.timer.Reset(workerPatience)
	}
	defer w.timer.Stop()
	select {
	case _, ok := <-w.wake:
		return ok
	case <-w.timer.C:
	}
	if w.of.dismiss(w) {
		return false
	}
	_, ok := <-w.wake // somebody has just taken the worker, or Close has
	return ok
}

// park makes the worker idle, if it may stay.
func (p *workers) park(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil || len(p.idle) == maxIdleWorkers {
		return false
	}
	p.idle = append(p.idle, w)
	return true
}

// dismiss takes the worker off the idle ones. It reports false if it is not one of them any more.
func (p *workers) dismiss(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle {
		if other == w {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return true
		}
	}
	return false
}

func (p *workers) start(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	go w.work()
}

func (p *workers) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count--
	p.check()
}

// check notes that nobody is left after Close. The caller holds mu.
func (p *workers) check() {
	if p.ended == nil || p.count > 0 {
		return
	}
	select {
	case <-p.ended: // a caller whose lock was lost before its batch began has come late
	default:
		close(p.ended)
	}
}

// close ends the idle workers, and waits until all have ended, or ctx has. Those that still run have lost their locks, or ctx has
// ended before.
func (p *workers) close(ctx context.Context) error {
	p.mu.Lock()
	if p.ended == nil {
		p.ended = make(chan struct{})
	}
	for _, w := range p.idle {
		close(w.wake)
	}
	p.idle = nil
	p.check()
	ended := p.ended
	p.mu.Unlock()
	select {
	case <-ended:
		return nil
	default:
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wllock: close: a batch function that has lost its lock has not returned: %w", ctx.Err())
	}
}
