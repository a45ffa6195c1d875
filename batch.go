package wllock

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/wllock/wllock/local"
)

// DefaultMaxBatch is the maximum number of callers that one run of a batch function serves, unless WithMaxBatch sets another. Measured with
// orders on PostgreSQL, 64 gave 14 times the throughput of the best single statement. 256 gave more only with 256 callers waiting in each
// process.
const DefaultMaxBatch = 64

// Item is one caller of a batch: its argument, and the answer that the batch function sets.
type Item[A, R any] struct {
	Arg    A     // as the caller gave it. What it refers to must not change before the batch has ended, even after the caller has left
	Result R     // set by the batch function, and returned to the caller together with Err
	Err    error // of this caller alone, for example "sold out". Other callers do not get it
	ctx    context.Context
}

// Context returns the caller's own context, with its values and its end. It does not carry the batch's lock: a guard of the same key that is
// called with it waits for this very batch. A caller that has left stays in the batch: fn carries out its item, unless fn chooses to leave it
// out.
func (i *Item[A, R]) Context() context.Context {
	if i.ctx == nil { // made by a test of the function
		return context.Background()
	}
	return i.ctx
}

// WrapBatch decorates a function that does the work of many callers at once. The caller that gets the lock also executes the calls queued
// directly behind it for the same guard and key, up to WithMaxBatch. fn runs once for all of them, in the order of their arrival, under one lock
// and one fence: one transaction instead of one each. A batch does not wait to fill up, so a lone caller is not delayed. Waiting callers count
// for the threshold, and options apply to them, as with Wrap.
//
// If fn returns nil, each caller gets the Result and Err of its item. Those of an item that fn does not set are zero and nil: fn must set the
// Err of each item that it does not carry out. If fn returns an error, every caller gets that error and nothing else: fn must then have left
// nothing behind, as a transaction that was rolled back. The same applies to ErrLeaseLost and ErrLockTimeMax. A panic in fn continues in every
// caller as a *BatchPanic, and a runtime.Goexit ends every caller's goroutine. Items must not be used after fn has returned.
//
// fn runs on a goroutine of its own. Its context carries the lock (HeldFrom) and ends when the lock is lost. That context does not descend from
// any caller's context, so it has none of their values and locks, and does not end with them: see Item.Context. Inside fn, a guard of the same
// key runs at once. A guard of another key that one of the batch's callers holds would deadlock: it waits for that caller, which waits for fn.
//
// A caller whose context ends while it waits leaves the queue. If its batch has begun, it returns at once with an *Error whose Ran is true, and
// fn still carries out its item. After that WithWait no longer applies to it. A caller inside its own hold of the key runs fn at once, alone,
// under that hold, and then fn's context ends with the hold's.
//
// A fallback runs for callers that were refused, never for those of a batch that has begun. With Shared, each call returns an error.
func WrapBatch[A, R any](l *Locker, name string, key func(A) string,
	fn func(ctx context.Context, batch []*Item[A, R]) error, opts ...CallOption) func(context.Context, A) (R, error) {
	group := new(local.Group)
	return func(ctx context.Context, a A) (r R, err error) {
		if key == nil || fn == nil {
			return r, l.mistake(errNilFunc, name, "")
		}
		s := &seat[A, R]{fn: fn, item: Item[A, R]{Arg: a, ctx: ctx}}
		s.Group, s.Owner = group, s
		if err := l.batch(ctx, name, key(a), opts, &s.batchCaller); err != nil { // rule B12
			return r, err
		}
		return s.item.Result, s.item.Err
	}
}

// seat is a caller of a batch guard and its item, in one allocation beside the hold.
type seat[A, R any] struct {
	batchCaller
	fn    func(ctx context.Context, batch []*Item[A, R]) error
	item  Item[A, R]
	alone [1]*Item[A, R] // the items of a batch of one
}

// work runs the function for the batch that the caller leads.
func (s *seat[A, R]) work(ctx context.Context, size int) error {
	items := s.alone[:0]
	if size > 1 {
		items = make([]*Item[A, R], 0, size)
	}
	for m := range s.Batch() {
		items = append(items, &m.Owner.(*seat[A, R]).item)
	}
	return s.fn(ctx, items)
}

func (s *seat[A, R]) caller() *batchCaller { return &s.batchCaller }

// WithMaxBatch sets the maximum number of callers that one run of a batch function serves (default [DefaultMaxBatch]), 1 or more. Unlimited: all
// that wait. It has no effect on other calls.
func WithMaxBatch(n int) CallOption {
	return func(c callOptions) callOptions {
		if n < 1 && n != Unlimited {
			return c.wrong("WithMaxBatch(%d): want 1 or more, or Unlimited", n)
		}
		c.maxBatch = int32(min(n, math.MaxInt32))
		return c
	}
}

// errSharedBatch: callers of a shared lock do not wait for each other, so there is nothing to batch.
var errSharedBatch = errors.New("wllock: a batch guard is exclusive: it cannot be Shared")

// BatchPanic is the value that each caller of a batch panics with after the batch function has panicked.
type BatchPanic struct {
	Value any    // what the function panicked with
	Stack []byte // the stack of the goroutine that panicked
}

// Error implements error, so that the runtime and loggers that print the panic print its text.
func (p *BatchPanic) Error() string {
	return fmt.Sprintf("wllock: batch function panicked: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns Value if it is an error.
func (p *BatchPanic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
