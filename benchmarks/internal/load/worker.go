package load

import (
	"context"
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

// worker is one goroutine that calls Do in a loop.
type worker struct {
	id        int // from 1, over all instances
	number    int // of its instance, from 1
	instance  contender.Instance
	locked    bool // the contender locks: its cells are checked
	handOvers bool
	fenced    bool    // the fences are checked: they must grow
	sale      bool    // it buys
	readers   float64 // how many of its calls are a reader's, of 1
	permits   int     // so many may be inside; 0: one
	work      time.Duration
	jitter    float64
	keys      []string
	cells     []cell
	choose    func() int
	phase     *atomic.Int32

	served     atomic.Bool // once at least
	told       int64       // how often it was told that it has bought, measured or not
	now        *cell       // of the call under way
	begun      time.Time   // when the last call began
	ops        int64
	inside     int64 // entries, measured or not
	latency    stats.Histogram
	handOver   stats.Histogram
	wait       stats.Histogram // until a permit was there
	violations int64
	fences     int64 // checked
	fallen     int64 // fences that were not above the one before
	failed     int64
	err        error // the first failure
}

func (w *worker) run(ctx context.Context) {
	inside, shared := w.critical, w.shared // made once: a method value is an allocation
	if w.permits > 0 {
		inside = w.permitted
	}
	reader, canRead := w.instance.(contender.Reader)
	seller, _ := w.instance.(contender.Seller)
	for w.phase.Load() != stopping {
		k := w.choose()
		w.now = &w.cells[k]
		w.begun = time.Now()
		var err error
		switch {
		case w.sale:
			err = seller.Sell(ctx, int64(w.id))
		case canRead && w.readers > 0 && rand.Float64() < w.readers:
			err = reader.DoShared(ctx, w.keys[k], shared)
		default:
			err = w.instance.Do(ctx, w.keys[k], inside)
		}
		took := time.Since(w.begun)
		w.answered(err)
		if w.phase.Load() != measuring {
			continue
		}
		if err != nil {
			w.failure(err)
			continue
		}
		w.ops++
		w.latency.Add(took)
	}
}

// answered counts a call, measured or not.
func (w *worker) answered(err error) {
	if err != nil {
		return
	}
	w.told++
	if !w.served.Load() {
		w.served.Store(true)
	}
}

func (w *worker) failure(err error) {
	if w.failed++; w.err == nil {
		w.err = err
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
	if w.handOvers {
		w.takeOver(c)
	}
	if !c.enter(w.id) {
		w.violations++
	}
	if w.fenced {
		w.checkFence(ctx, c)
	}
	w.doWork()
	if !c.leave(w.id) {
		w.violations++
	}
	if w.handOvers {
		c.left, c.instance = time.Now(), w.number
	}
	return nil
}

// shared is the function that runs under a reader's lock.
func (w *worker) shared(context.Context) error {
	c := w.now
	if !c.enterShared() {
		w.violations++
	}
	w.doWork()
	if !c.leaveShared() {
		w.violations++
	}
	return nil
}

// permitted is the function that runs with a permit.
func (w *worker) permitted(context.Context) error {
	if w.phase.Load() == measuring {
		w.wait.Add(time.Since(w.begun))
	}
	c := w.now
	if !c.enterPermitted(w.permits) {
		w.violations++
	}
	w.doWork()
	c.leavePermitted()
	return nil
}

// checkFence compares with the fence of the exclusive holder before.
func (w *worker) checkFence(ctx context.Context, c *cell) {
	w.fences++
	if held, ok := wllock.HeldFrom(ctx); !ok || !c.grew(held.Fence()) {
		w.fallen++
	}
}

// takeOver measures how long ago another instance returned.
func (w *worker) takeOver(c *cell) {
	if c.instance != 0 && c.instance != w.number && w.phase.Load() == measuring {
		w.handOver.Add(time.Since(c.left))
	}
}

func (w *worker) doWork() {
	if w.work > 0 {
		more := w.jitter * (2*rand.Float64() - 1)
		precise.Sleep(w.work + time.Duration(more*float64(w.work)))
	}
}
