package hold

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ownContext is the context that a guarded function runs with. It follows the caller's context and ends by itself when
// the lock is lost. It is a part of the hold, so that a guarded call makes one allocation for both; a channel and an
// AfterFunc on the caller's context are made only for a function that asks for Done.
//
// After the function has returned, the context continues as the caller's: a guard around a function does not change how
// long the context lives for what that function has started. The lock is no longer held. So as not to leak through a
// caller's context that may live as long as the process, the AfterFunc then keeps only the channel, not this context, and
// is stopped when this context is collected; unless contexts derived directly from this one are still in use.
//
// The first of several reasons to end counts, and what Err and Cause have once returned stays. ended decides, once, by a compare-and-swap:
// the hold stores its own end there, and whoever first sees that the parent has ended, the hold or a reader, stores the parent. So a
// reader has never seen an end that loses. One gap is left: context.Cause asks for a value, and then for the cause in it. If both ends come
// between these two steps, it may return the cause of the one that has lost.
type ownContext struct {
	parent context.Context
	ended  atomic.Pointer[endedContext] // nil: nobody has seen an end yet; set once

	mu      sync.Mutex // guards all below
	done    chan struct{}
	closed  bool // the hold has ended; done is kept only for derived contexts
	stop    func() bool
	derived map[*derivedContext]struct{}
}

// endedContext wraps the context that has ended: the parent, or, of a hold that has ended, a standard context that carries the
// cause, because context.Cause looks for one of those.
type endedContext struct {
	context.Context
	byHold bool
}

// derivedContext is a context derived from this one, to be canceled with it.
type derivedContext struct{ cancel func() }

// Deadline implements context.Context.
func (c *ownContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// over returns what has ended the context; nil: nothing has.
func (c *ownContext) over() *endedContext {
	if e := c.ended.Load(); e != nil {
		return e
	}
	if c.parent.Err() == nil {
		return nil
	}
	c.ended.CompareAndSwap(nil, &endedContext{Context: c.parent})
	return c.ended.Load()
}

// endedByHold returns the context that the hold has ended this one with; nil: it has not, or the parent has ended before.
func (c *ownContext) endedByHold() *endedContext {
	if e := c.ended.Load(); e != nil && e.byHold {
		return e
	}
	return nil
}

// Err implements context.Context.
func (c *ownContext) Err() error {
	if e := c.over(); e != nil {
		return e.Err()
	}
	return nil
}

// Done implements context.Context.
func (c *ownContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := c.over(); {
	case e != nil: // if it is the parent, done may not be closed yet, or be forgotten
		return e.Done()
	case c.done == nil && c.closed:
		return c.parent.Done()
	case c.done == nil:
		c.done = make(chan struct{})
		if c.parent.Done() != nil {
			c.stop = AfterFunc(c.parent, c.parentEnded)
		}
	}
	return c.done
}

// value is Value without the hold's own key. context.Cause asks it for the context that has the cause, so it is a reader of the end.
func (c *ownContext) value(key any) any {
	if e := c.over(); e != nil {
		return e.Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine for each derived one.
func (c *ownContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over() != nil {
		go f()
		return func() bool { return false }
	}
	if c.closed {
		return AfterFunc(c.parent, f)
	}
	d := &derivedContext{cancel: f}
	if c.derived == nil {
		c.derived = make(map[*derivedContext]struct{})
	}
	c.derived[d] = struct{}{}
	return func() bool { return c.forget(d) }
}

// end ends the context, and all derived from it, with a cause of the hold's.
func (c *ownContext) end(cause error) {
	c.mu.Lock()
	if c.closed || c.over() != nil {
		c.mu.Unlock()
		return
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(c.parent))
	cancel(cause)
	if !c.ended.CompareAndSwap(nil, &endedContext{inner, true}) { // a reader has just seen the parent's end: parentEnded does the rest
		c.mu.Unlock()
		return
	}
	derived := c.finish()
	c.mu.Unlock()
	for d := range derived {
		d.cancel()
	}
}

// parentEnded ends what follows the caller's context.
func (c *ownContext) parentEnded() {
	c.mu.Lock()
	if e := c.over(); e != nil && e.byHold {
		c.mu.Unlock()
		return
	}
	derived := c.finish()
	c.mu.Unlock()
	for d := range derived {
		d.cancel()
	}
}

// finish closes the channel that Done has returned, and returns the derived contexts. Later calls of Done return the
// channel of what has ended. The caller holds mu.
func (c *ownContext) finish() map[*derivedContext]struct{} {
	derived := c.derived
	if c.done != nil {
		close(c.done)
	}
	c.unwatch()
	return derived
}

// close makes the context behave as the caller's again.
func (c *ownContext) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.weaken()
}

// forget is called when a derived context ends. It reports whether that came before the end of this one.
func (c *ownContext) forget(d *derivedContext) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.derived[d]
	delete(c.derived, d)
	if c.closed {
		c.weaken()
	}
	return was
}

// weaken makes the AfterFunc on the caller's context keep only the channel that Done has returned, and not c. With derived
// contexts it stays as it is. The caller holds mu.
func (c *ownContext) weaken() {
	if len(c.derived) > 0 || c.stop == nil || !c.stop() { // !c.stop(): parentEnded is about to close the channel
		return
	}
	done := c.done
	stop := AfterFunc(c.parent, func() { close(done) })
	runtime.AddCleanup(c, func(stop func() bool) { stop() }, stop)
	c.stop = nil
}

// unwatch stops the AfterFunc on the caller's context. The caller holds mu.
func (c *ownContext) unwatch() {
	if c.stop != nil {
		c.stop()
	}
	c.stop, c.done, c.derived = nil, nil, nil
}
