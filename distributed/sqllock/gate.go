package sqllock

import (
	"context"
	"fmt"

	"github.com/wllock/wllock/distributed"
)

// rowShare is which part of the places at the gate the calls for one lock have at most: its row lets in one after the other.
const rowShare = 3

// row is the gate of one lock, while there are calls for it.
type row struct {
	gate  chan struct{}
	calls int // guarded by Backend.mu
}

// pass passes the lock's gate and then that of all, so that one whose row somebody keeps locked leaves places to the others (rule D10).
func (a *attempt) pass(ctx, bound context.Context) (leave func(), err error) {
	b := a.b
	r := b.join(a.name)
	if err := passOne(ctx, bound, r.gate); err != nil {
		b.part(a.name, r)
		return nil, distributed.Unavailable("sqllock: enter", fmt.Errorf("%d calls for this lock are under way: %w", cap(r.gate), err))
	}
	leaveRow := func() { <-r.gate; b.part(a.name, r) }
	if err := passOne(ctx, bound, b.gate); err != nil {
		leaveRow()
		return nil, distributed.Unavailable("sqllock: enter", fmt.Errorf("%d calls are under way: %w", cap(b.gate), err), distributed.ErrUnreached)
	}
	return func() { <-b.gate; leaveRow() }, nil
}

func passOne(ctx, bound context.Context, gate chan struct{}) error {
	select {
	case gate <- struct{}{}:
		return nil
	default:
	}
	select {
	case gate <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-bound.Done():
	}
	return firstError(ctx.Err(), bound.Err())
}

// join returns the gate of a lock, until part.
func (b *Backend) join(name string) *row {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.gates[name]
	if r == nil {
		r = &row{gate: make(chan struct{}, max(1, cap(b.gate)/rowShare))}
		b.gates[name] = r
	}
	r.calls++
	return r
}

func (b *Backend) part(name string, r *row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.calls--; r.calls == 0 {
		delete(b.gates, name)
	}
}
