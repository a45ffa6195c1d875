package wllock

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/local"
)

// batchCaller is a caller of a batch guard, without the types of its item. Every caller has a hold, because every one may lead;
// of a rider it is never open, and only says how long the caller waited.
//
//	join ──nested in its own hold──▶ alone: runs the function under that, in the caller's goroutine
//	  ├─error──▶ fallback
//	  ├─has the lock──▶ leads: Turn.Take, and run does the work ──────────┐
//	  └─taken along ──────────────────────────────────────────────────────┴─▶ await: the end of the batch, or of the context
type batchCaller struct {
	local.Member
	hold   *hold.Hold    // nil: nested
	told   chan struct{} // of a leader: where it waits; it belongs to Locker.told
	ending ending        // written before Member.End, read by the caller after that
}

// ending is how a batch has ended, for all of its callers.
type ending struct {
	err      error
	panicked *BatchPanic
	exited   bool // by runtime.Goexit
}

// batchWork is the part of a batchCaller that knows the types of items.
type batchWork interface {
	work(ctx context.Context, size int) error
	caller() *batchCaller
}

// batch is a call of a batch guard. nil: the item has the answer.
func (l *Locker) batch(ctx context.Context, name, key string, opts []CallOption, c *batchCaller) error {
	e, max, err := l.join(ctx, name, key, opts, c)
	switch {
	case err == local.ErrRides:
	case err != nil && e.fallback != nil:
		return e.fallback(ctx, err) // rule B11
	case err != nil:
		return err
	case c.hold == nil:
		return c.alone(e)
	default:
		l.lead(e, c, max)
		defer func() { l.told.Put(c.told) }() // empty, and nobody sends there: either the value came, or the leader has left
	}
	return c.await(ctx)
}

// join is the way in of a caller of a batch guard. local.ErrRides: it was taken along.
func (l *Locker) join(ctx context.Context, name, key string, opts []CallOption, c *batchCaller) (e entered, max int, err error) {
	if ctx == nil {
		return e, 0, l.mistake(errNilContext, name, key)
	}
	var r request
	err = l.request(&r, name, key, opts)
	e.fallback = r.options.fallback
	switch {
	case err != nil:
	case r.options.permits > 0:
		err = errPermitBatch // rule P5
	case r.options.mode == distributed.Shared:
		err = errSharedBatch // rule B11
	}
	if err != nil {
		return e, 0, err
	}
	e.releaseWait = l.releaseWait(&r)
	if e.hold, e.ctx, err = l.within(ctx, &r); e.hold != nil || err != nil { // rule B8
		return e, 0, err
	}
	h := new(own).hold()
	c.hold, e.hold, e.ctx = h, h, h
	h.Init(l.holds, context.Background(), &r.name.Name, r.key, r.options.mode) // rule B8
	asked := time.Now()
	traced := h.Trace(ctx)
	h.Join(&c.Member)
	err = l.acquire(traced, h, &r, asked, r.options.deadline(asked))
	if d := r.options.lockTimeMax; err == nil && d > 0 {
		h.LimitBy(h.Began().Add(d)) // rule B4
	}
	return e, int(r.options.maxBatch), err
}

// run is a batch under way, on a goroutine of Locker.batches, which its hold owns: the callers wait for the end of the function, and
// Close waits for all.
type run struct {
	entered entered // of the leader
	leader  *batchCaller
	size    int
}

// lead makes c, which has the lock, the leader of a batch, and starts that.
func (l *Locker) lead(e entered, c *batchCaller, max int) {
	told, ok := l.told.Get().(chan struct{})
	if !ok {
		told = make(chan struct{}, 1)
	}
	c.told = told
	l.batches.Do(run{e, c, c.hold.Lead(max, told)})
}

// do runs the batch. Both tiers are released before the callers are told, however the function ends.
func (r run) do() {
	returned := false
	var end ending
	defer func() {
		if !returned { // rule B10
			end.exited = true
			if v := recover(); v != nil {
				end = ending{panicked: newBatchPanic(v)}
			}
		}
		if r.leader.tell(end) == 0 && end.panicked != nil {
			panic(end.panicked) // nobody else would notice
		}
	}()
	end.err = r.work()
	returned = true
}

// work runs the function, and releases the lock.
func (r run) work() error {
	ctx, span := r.trace()
	failed := true
	defer func() { r.leader.hold.Group().Observer.EndedBatch(span, failed) }()
	r.entered.ctx = ctx
	err := r.entered.run(func(ctx context.Context) error { return r.leader.Owner.(batchWork).work(ctx, r.size) })
	failed = err != nil
	return closedBy(r.leader.hold, err)
}

// trace starts the span of the batch, and returns the context for the function.
func (r run) trace() (context.Context, trace.Span) {
	h := r.leader.hold
	if !h.Group().Observer.Traces() {
		return h, nil
	}
	callers := make([]*report.Spans, 0, r.size)
	for m := range r.leader.Batch() {
		callers = append(callers, m.Owner.(batchWork).caller().hold.Spans())
	}
	return h.TraceBatch(callers)
}

// alone runs the function inside the caller's own hold, as a batch of one. Its context carries that hold, but none of the
// caller's values, nor the locks around it, and ends with the hold's.
func (c *batchCaller) alone(e entered) error { // rule B8
	outer := e.hold.Context()
	ctx, cancel := context.WithCancelCause(hold.Nested(context.Background(), e.hold))
	stop := hold.AfterFunc(outer, func() { cancel(context.Cause(outer)) })
	e.ctx = ctx
	return e.run(func(ctx context.Context) error {
		returned := false
		defer func() {
			stop()
			cancel(nil)
			if returned {
				return
			}
			if v := recover(); v != nil {
				panic(newBatchPanic(v))
			}
		}()
		err := c.Owner.(batchWork).work(ctx, 1)
		returned = true
		return err
	})
}

// await waits for the end of the batch or of the caller's context, leader and riders alike.
func (c *batchCaller) await(ctx context.Context) error { // rule B7
	served := c.Wait(ctx)
	if c.hold.Rides() {
		c.hold.Rode(ctx, c.Taken())
	}
	switch {
	case !served:
		return c.left(ctx)
	case c.ending.panicked != nil: // rule B10
		panic(c.ending.panicked)
	case c.ending.exited:
		runtime.Goexit()
	}
	return c.ending.err // rule B9
}

// left is the error of a caller whose context has ended before its batch.
func (c *batchCaller) left(ctx context.Context) error { // rule B7
	h := c.hold
	e := &Error{Op: "batch", Key: h.Shown(), Tier: TierLocal, LocalWait: h.LocalWait(), Ran: true, Err: public(ctx, ctx.Err())}
	if !h.Rides() {
		e.DistributedWait = h.DistributedWait()
	}
	e.Waited = e.LocalWait + e.DistributedWait
	return e
}

func newBatchPanic(value any) *BatchPanic { return &BatchPanic{Value: value, Stack: debug.Stack()} }

// tell tells all callers how the batch has ended. It returns how many were still there.
func (c *batchCaller) tell(end ending) (told int) {
	for m := range c.Batch() {
		m.Owner.(batchWork).caller().ending = end // a caller that has left does not look
		if m.End() {
			told++
		}
	}
	return told
}

// closedBy joins ErrClosed with the error of a function that stopped because Close ended its context: its callers' contexts have
// not ended, and they would not know what did.
func closedBy(h *hold.Hold, err error) error {
	ended, cause := h.Ended()
	if err == nil || ended == nil || !errors.Is(err, ended) || cause != ErrClosed {
		return err
	}
	return explain(h, []error{ErrClosed}, err)
}
