package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// crew is the part of a sale that one process does: every stride-th instance from first on, over one backend.
type crew struct {
	settings
	system        string
	shop          *shop
	backend       distributed.Backend
	first, stride int
}

// meter is what can be seen of a round while it runs.
type meter struct {
	answered, bought atomic.Int64
}

// run serves all buyers of the crew and returns what they saw. Only an interruption is an error; what goes wrong for a
// buyer is counted.
func (c *crew) run(ctx context.Context, r round, m *meter) (result, error) {
	backend := &counting{Backend: c.backend}
	t := &tally{start: time.Now(), meter: m}
	var instances sync.WaitGroup
	for n := c.first; n < c.Instances; n += c.stride {
		i := &instance{settings: c.settings, system: c.system, product: r.id, shop: c.shop, backend: backend}
		instances.Go(func() {
			if err := i.serve(ctx, n, r, t); err != nil {
				t.fail(fmt.Errorf("instance %d: %w", n, err))
			}
		})
	}
	instances.Wait()
	t.result.Requests = backend.requests.Load()
	return t.result, context.Cause(ctx)
}

// serve opens the n-th instance, lets its buyers come and closes it when the last has gone.
func (i *instance) serve(ctx context.Context, n int, r round, t *tally) error {
	sell, closeClerk, err := r.open(i)
	if err != nil {
		return err
	}
	var buyers sync.WaitGroup
	for b := range i.Buyers {
		buyers.Go(func() {
			if sleep(ctx, i.Ramp*time.Duration(b)/time.Duration(i.Buyers)) != nil {
				return // interrupted before this buyer came
			}
			v := &visit{buyer: fmt.Sprintf("%d-%d", n, b), arrived: time.Now()}
			t.add(v, sell(ctx, v))
		})
	}
	buyers.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTTL) // later, every lease has run out anyway
	defer cancel()
	return closeClerk(ctx)
}

// tally adds up what the buyers of a process see.
type tally struct {
	start time.Time
	meter *meter

	mu     sync.Mutex
	result result // guarded by mu until all buyers have gone
}

func (t *tally) add(v *visit, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.letIn {
		t.result.Waits = append(t.result.Waits, v.waited)
	}
	switch {
	case err == nil:
		t.result.Bought++
		t.result.Selling = time.Since(t.start)
		t.meter.bought.Add(1)
	case errors.Is(err, errSoldOut):
		t.result.SoldOut++
	case errors.Is(err, errTryLater):
		t.result.Refused++
	default:
		t.result.Failed++
		t.note(err)
	}
	t.meter.answered.Add(1)
}

// fail notes a failure that no buyer saw.
func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Failed++
	t.note(err)
}

// note keeps the first failure: what follows is mostly its consequence.
func (t *tally) note(err error) {
	if t.result.Failure == "" {
		t.result.Failure = err.Error()
	}
}
