package load

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/precise"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// The phases of a round. Only calls that return while it measures count.
const (
	warming int32 = iota
	measuring
	stopping
)

// worker is one goroutine that calls Do in a loop. Others read served at any time, and the rest once the goroutine has ended.
type worker struct {
	*Scenario
	id       int // from 1, over all instances
	number   int // of its instance, from 1
	instance contender.Instance
	locked   bool // the contender locks: its cells are checked
	fenced   bool // the fences are checked: they must grow
	keys     []string
	cells    []cell
	choose   func() int
	phase    *atomic.Int32

	served   atomic.Bool // once at least
	now      *cell       // of the call under way
	begun    time.Time   // when the last call began
	did      Round       // its part of what is counted
	inside   int64       // entries, measured or not
	latency  stats.Histogram
	handOver stats.Histogram
	wait     stats.Histogram // until a permit was there
}

func newWorkers(c contender.Contender, s Scenario, instances []contender.Instance, phase *atomic.Int32) (workers []*worker, cells []cell) {
	keys := s.keyNames()
	cells = make([]cell, len(keys))
	for i, in := range instances {
		for range s.Workers {
			workers = append(workers, &worker{
				Scenario: &s, id: len(workers) + 1, number: i + 1, instance: in, locked: c.Role != contender.Limit,
				fenced: s.Fences && c.Fenced && !s.Sale, keys: keys, cells: cells, choose: s.chooser(len(workers)), phase: phase,
			})
		}
	}
	return workers, cells
}

func (w *worker) run(ctx context.Context) {
	inside, shared := w.critical, w.shared // made once: a method value is an allocation
	if w.Permits > 0 {
		inside = shared
	}
	for w.phase.Load() != stopping {
		k := w.choose()
		w.now = &w.cells[k]
		w.begun = time.Now()
		var err error
		switch {
		case w.Sale:
			err = w.instance.Sell(ctx, int64(w.id))
		case w.instance.DoShared != nil && w.Readers > 0 && rand.Float64() < w.Readers:
			err = w.instance.DoShared(ctx, w.keys[k], shared)
		default:
			err = w.instance.Do(ctx, w.keys[k], inside)
		}
		took := time.Since(w.begun)
		if err == nil {
			w.answered()
		}
		switch {
		case w.phase.Load() != measuring:
		case err == nil:
			w.did.Ops++
			w.latency.Add(took)
		default:
			if w.did.Failed++; w.did.Failure == "" {
				w.did.Failure = err.Error()
			}
		}
	}
}

// answered counts a call, measured or not.
func (w *worker) answered() {
	if w.Sale {
		w.did.Told++
	}
	if !w.served.Load() {
		w.served.Store(true)
	}
}

// critical is the function that runs under the lock.
func (w *worker) critical(ctx context.Context) error {
	if !w.locked {
		w.doWork()
		return nil
	}
	c := w.now
	w.inside++
	if w.HandOvers {
		w.takeOver(c)
	}
	if !c.enter(w.id) {
		w.did.Violations++
	}
	if w.fenced {
		w.checkFence(ctx, c)
	}
	w.doWork()
	if !c.leave(w.id) {
		w.did.Violations++
	}
	if w.HandOvers {
		c.left, c.instance = time.Now(), w.number
	}
	return nil
}

// shared is the function that runs under a reader's lock, or with a permit.
func (w *worker) shared(context.Context) error {
	atMost := math.MaxInt32 // readers
	if w.Permits > 0 {
		atMost = w.Permits
		if w.phase.Load() == measuring {
			w.wait.Add(time.Since(w.begun))
		}
	}
	c := w.now
	if !c.enterShared(atMost) {
		w.did.Violations++
	}
	w.doWork()
	if !c.leaveShared() {
		w.did.Violations++
	}
	return nil
}

// checkFence compares with the fence of the exclusive holder before.
func (w *worker) checkFence(ctx context.Context, c *cell) {
	w.did.Fences++
	if held, ok := wllock.HeldFrom(ctx); !ok || !c.grew(held.Fence()) {
		w.did.FencesFallen++
	}
}

// takeOver measures how long ago another instance returned.
func (w *worker) takeOver(c *cell) {
	if c.instance != 0 && c.instance != w.number && w.phase.Load() == measuring {
		w.handOver.Add(time.Since(c.left))
	}
}

func (w *worker) doWork() {
	if w.Work > 0 {
		more := w.Jitter * (2*rand.Float64() - 1)
		precise.Sleep(w.Work + time.Duration(more*float64(w.Work)))
	}
}

// cell is what a key's lock protects: plain memory, on purpose not atomic. Two workers inside at once overwrite each other's
// mark or lose an increment, and both are detected.
type cell struct {
	owner   int // the worker inside, counted from 1; 0: none
	entered int64
	fence   uint64 // of the worker that was inside last

	sharing atomic.Int32 // readers, or holders of permits, that are inside at this moment

	// for hand-overs
	left     time.Time
	instance int // which one was inside last, counted from 1; 0: none so far
}

// enter marks the cell as w's and reports whether it was free. Not inlined, nor is leave: the compiler might otherwise
// conclude that the mark cannot have changed in between.
//
//go:noinline
func (c *cell) enter(w int) bool {
	free := c.owner == 0 && c.sharing.Load() == 0
	c.owner = w
	c.entered++
	return free
}

// leave reports whether the cell still was w's, and frees it.
//
//go:noinline
func (c *cell) leave(w int) bool {
	still := c.owner == w && c.sharing.Load() == 0
	c.owner = 0
	return still
}

// grew takes the fence of the worker inside, and reports whether it is above that of the one before.
func (c *cell) grew(fence uint64) bool {
	above := fence > c.fence
	c.fence = fence
	return above
}

// enterShared counts a holder, and reports whether there are no more than atMost and no exclusive one. Not inlined, nor is leaveShared:
// see enter.
//
//go:noinline
func (c *cell) enterShared(atMost int) bool {
	return c.sharing.Add(1) <= int32(atMost) && c.owner == 0
}

// leaveShared reports whether still no exclusive one is inside, and counts the holder out.
//
//go:noinline
func (c *cell) leaveShared() bool {
	still := c.owner == 0
	c.sharing.Add(-1)
	return still
}
