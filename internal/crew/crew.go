// Package crew runs jobs on goroutines that stay for a while. A goroutine that has done a job keeps the stack that has grown for it: on a
// new one it would grow anew for every job.
package crew

import (
	"context"
	"sync"
	"time"
)

const (
	// maxIdle bounds the goroutines that wait for work: enough for the hot keys of a process.
	maxIdle = 8
	// patience is for how long an idle worker stays. It spans the pauses between the orders of a shop.
	patience = time.Second
)

// Crew runs jobs, each on one goroutine, and Close waits for all. Several goroutines may use it.
type Crew[Job any] struct {
	do func(Job)

	mu    sync.Mutex
	idle  []*worker[Job] // guarded by mu; the last one has been idle for the shortest time
	count int            // goroutines; guarded by mu
	ended chan struct{}  // made by Close, closed when there are none any more; guarded by mu
}

// worker is a goroutine and the job that it does. It belongs to whoever has it: the crew while it is idle, then who has taken it, and
// its goroutine from the start or wake on.
type worker[Job any] struct {
	of    *Crew[Job]
	wake  chan struct{} // receives a value when there is a job; closed by Close
	timer *time.Timer
	job   Job
}

// New returns a Crew. do does a job. It may end its goroutine.
func New[Job any](do func(Job)) *Crew[Job] { return &Crew[Job]{do: do} }

// Do has a job done, beside the caller.
func (c *Crew[Job]) Do(job Job) {
	if w := c.take(); w != nil {
		w.job = job
		w.wake <- struct{}{} // there is room: only who has taken the worker sends
		return
	}
	w := &worker[Job]{of: c, wake: make(chan struct{}, 1), job: job}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	go w.work()
}

// take returns an idle worker, nil if there is none.
func (c *Crew[Job]) take() *worker[Job] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	w := c.idle[n-1]
	c.idle[n-1], c.idle = nil, c.idle[:n-1]
	return w
}

// work does jobs until no more come for a while. If a job ends the goroutine, the worker goes with it.
func (w *worker[Job]) work() {
	defer w.of.end()
	for {
		w.serve()
		if !w.rest() {
			return
		}
	}
}

func (w *worker[Job]) serve() {
	var none Job
	job := w.job
	w.job = none // an idle worker keeps nothing
	w.of.do(job)
}

// rest waits for the next job. false: there will be none.
func (w *worker[Job]) rest() bool {
	if !w.of.park(w) {
		return false
	}
	if w.timer == nil {
		w.timer = time.NewTimer(patience)
	} else {
		w.timer.Reset(patience)
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
func (c *Crew[Job]) park(w *worker[Job]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil || len(c.idle) == maxIdle {
		return false
	}
	c.idle = append(c.idle, w)
	return true
}

// dismiss takes the worker off the idle ones. It reports false if it is not one of them any more.
func (c *Crew[Job]) dismiss(w *worker[Job]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.idle {
		if other == w {
			c.idle = append(c.idle[:i], c.idle[i+1:]...)
			return true
		}
	}
	return false
}

func (c *Crew[Job]) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	c.check()
}

// check notes that nobody is left after Close. The caller holds mu.
func (c *Crew[Job]) check() {
	if c.ended == nil || c.count > 0 {
		return
	}
	select {
	case <-c.ended: // a job has come after Close
	default:
		close(c.ended)
	}
}

// Close ends the idle workers, and waits until all have ended, or ctx has, whose error it returns. A job that comes later is done
// all the same.
func (c *Crew[Job]) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	for _, w := range c.idle {
		close(w.wake)
	}
	c.idle = nil
	c.check()
	ended := c.ended
	c.mu.Unlock()
	select {
	case <-ended:
		return nil
	default:
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
