package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing/synctest"

	"github.com/wllock/wllock"
)

type (
	item  = wllock.Item[int, int]
	batch = []*item
)

// doubling answers each item with twice its argument.
func doubling(_ context.Context, b batch) error {
	for _, i := range b {
		i.Result = 2 * i.Arg
	}
	return nil
}

// desk is a batch guard for the key n:k that notes which batches it has run, and asks work.
type desk struct {
	call func(context.Context, int) (int, error)
	work func(context.Context, batch) error

	mu      sync.Mutex
	batches []string // the arguments of each
	fences  []uint64
}

func newDesk(l *wllock.Locker, work func(context.Context, batch) error, opts ...wllock.CallOption) *desk {
	d := &desk{work: work}
	d.call = wllock.WrapBatch(l, "n", func(int) string { return "k" }, d.run, opts...)
	return d
}

func (d *desk) run(ctx context.Context, b batch) error {
	var args []int
	for _, i := range b {
		args = append(args, i.Arg)
	}
	held, _ := wllock.HeldFrom(ctx)
	d.note(fmt.Sprint(args))
	d.mu.Lock()
	d.fences = append(d.fences, held.Fence())
	d.mu.Unlock()
	return d.work(ctx, b)
}

func (d *desk) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = append(d.batches, what)
}

func (d *desk) noted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// customer is a caller of a batch guard on its own goroutine.
type customer struct {
	arg, result int
	err         error
	panicked    any
	back        atomic.Bool // the call has returned, or panicked
	gone        atomic.Bool // the goroutine has ended; without back, by Goexit
}

// comes lets one caller begin, in a synctest bubble, and returns when it waits or is back.
func (d *desk) comes(ctx context.Context, arg int) *customer {
	c := &customer{arg: arg}
	go func() {
		defer c.gone.Store(true)
		defer func() {
			if c.panicked = recover(); c.panicked != nil {
				c.back.Store(true)
			}
		}()
		c.result, c.err = d.call(ctx, arg)
		c.back.Store(true)
	}()
	synctest.Wait()
	return c
}

// come lets callers with the arguments from to to begin, one after the other.
func (d *desk) come(ctx context.Context, from, to int) (all []*customer) {
	for arg := from; arg <= to; arg++ {
		all = append(all, d.comes(ctx, arg))
	}
	return all
}

// served reports whether each caller has got its own result.
func served(all ...*customer) bool {
	synctest.Wait()
	for _, c := range all {
		if !c.back.Load() || c.err != nil || c.panicked != nil || c.result != 2*c.arg {
			return false
		}
	}
	return true
}

// ranWith returns the error of a caller whose batch has begun, or nil.
func ranWith(c *customer, want error) error {
	synctest.Wait()
	e, ok := errors.AsType[*wllock.Error](c.err)
	switch {
	case !c.back.Load():
		return errors.New("not back")
	case !ok || !e.Ran || !errors.Is(c.err, want):
		return fmt.Errorf("%v; want %v, with Ran", c.err, want)
	case c.result != 0:
		return fmt.Errorf("result %d", c.result)
	}
	return nil
}
