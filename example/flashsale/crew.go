package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// crew is one process's part of a sale: every stride-th instance from first on, over one backend.
type crew struct {
	settings
	system        string
	shop          *shop
	sql           *sqlshop.Shop // instead of shop, for -db
	backend       distributed.Backend
	first, stride int
}

func (c *crew) openBackend(ctx context.Context, url string) (err error) {
	if c.backend, err = openBackend(url); err != nil {
		return err
	}
	return c.backend.Ping(ctx)
}

// openSQL opens all connections before the sale begins.
func (c *crew) openSQL(ctx context.Context, url string, pool int) (err error) {
	c.sql, err = sqlshop.Open(url, pool, func(ctx context.Context) error { return sleep(ctx, c.Think) })
	if err != nil {
		return err
	}
	return c.sql.Connect(ctx)
}

// close closes what was opened.
func (c *crew) close() {
	if c.shop != nil {
		c.shop.Close()
	}
	if c.sql != nil {
		c.sql.Close()
	}
	if c.backend != nil {
		_ = c.backend.Close() // its leases are released
	}
}

// meter is the visible progress of a round.
type meter struct {
	arrived, answered, bought atomic.Int64
	started                   func() // is called when all is ready and nobody has bought; may be nil
}

func (m *meter) start() {
	if m.started != nil {
		m.started()
	}
}

// run serves all buyers of the crew and returns their results. Only an interruption is an error; a buyer's failure is
// counted.
func (c *crew) run(ctx context.Context, r round, m *meter) (result, error) {
	way := &link{Backend: c.backend, rtt: c.RTT}
	t := &tally{start: time.Now(), meter: m}
	observed := c.observe(ctx)
	var instances sync.WaitGroup
	for n := c.first; n < c.Instances; n += c.stride {
		i := &instance{settings: c.settings, system: c.system, product: r.id, shop: c.shop, sql: c.sql, backend: way.backend()}
		instances.Go(func() {
			if err := i.serve(ctx, n, r, t); err != nil {
				t.fail(fmt.Errorf("instance %d: %w", n, err))
			}
		})
	}
	instances.Wait()
	t.result.Requests = way.requests.Load()
	observed(&t.result)
	return t.result, context.Cause(ctx)
}

// serve opens the n-th instance, serves its buyers and closes it after the last. Buyers that would have come before it opened are
// not served.
func (i *instance) serve(ctx context.Context, n int, r round, t *tally) error {
	sell, closeClerk, err := r.open(i)
	if err != nil {
		return err
	}
	coming := i.coming
	if coming == nil {
		coming = ctx
	}
	var buyers sync.WaitGroup
	for b := range i.Buyers {
		comes := i.Ramp*time.Duration(b)/time.Duration(i.Buyers) - i.late
		if comes < 0 {
			continue
		}
		buyers.Go(func() {
			if sleep(coming, comes) != nil {
				return // the sale ended, or was interrupted, before this buyer came
			}
			t.meter.arrived.Add(1)
			v := &visit{buyer: fmt.Sprintf("%d-%d", n, b), arrived: time.Now()}
			t.add(v, sell(ctx, v))
		})
	}
	buyers.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.ttl()) // after that, every lease has expired anyway
	defer cancel()
	return closeClerk(ctx)
}

// tally adds up the results of a process's buyers.
type tally struct {
	start time.Time
	meter *meter

	mu     sync.Mutex
	result result // guarded by mu until all buyers are done
}

func (t *tally) add(v *visit, err error) {
	answered := time.Since(v.arrived)
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.letIn {
		t.result.Waits = append(t.result.Waits, v.waited)
	}
	switch {
	case err == nil:
		t.result.Bought++
		t.result.Answers = append(t.result.Answers, answered)
		t.result.Selling = time.Since(t.start)
		t.meter.bought.Add(1)
	case errors.Is(err, errSoldOut):
		t.result.SoldOut++
	case errors.Is(err, errTryLater), errors.Is(err, sqlshop.ErrContended):
		t.result.Refused++
	default:
		t.result.Failed++
		t.note(err)
	}
	t.meter.answered.Add(1)
}

// fail records a failure that affected no buyer.
func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Failed++
	t.note(err)
}

// note keeps the first failure: the later ones are mostly its consequences.
func (t *tally) note(err error) {
	if t.result.Failure == "" {
		t.result.Failure = err.Error()
	}
}
