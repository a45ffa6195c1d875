package sale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// crew is one process's part of a sale in one way: every stride-th instance from first on.
type crew struct {
	Task
	Stall
	way    Way
	coming context.Context // its end is that of the arrivals, not of the orders
	link   *link           // to the lock service, if the way has locks
	shop   *sqlshop.Shop

	start   time.Time
	mu      sync.Mutex       // guards Threshold, too
	result  Result           // guarded by mu: since it was taken
	lockers []*wllock.Locker // guarded by mu: those of instances
}

// open opens all connections to the database before the sale begins. Close the crew, also after an error.
func (c *crew) open(ctx context.Context) (err error) {
	c.link = &link{rtt: c.RTT}
	think := func(ctx context.Context) error { return sqlshop.Sleep(ctx, c.Think) }
	if c.shop, err = sqlshop.Open(c.URL, c.Pool, think); err != nil {
		return err
	}
	if c.way.Locked {
		c.link.Observable, err = c.OpenBackend(ctx, false)
	}
	return errors.Join(err, c.shop.Connect(ctx))
}

func (c *crew) close() {
	if c.shop != nil {
		c.shop.Close()
	}
	if c.link != nil && c.link.Observable != nil {
		_ = c.link.Close() // its leases are released
	}
}

// run serves all buyers of the crew. Only an interruption is an error; a buyer's failure is counted.
func (c *crew) run(ctx context.Context) error {
	c.start = time.Now()
	var instances, looking sync.WaitGroup
	over := make(chan struct{})
	if c.Modes != nil {
		looking.Go(func() {
			waits := visitors(ctx, over, func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, c.Wait) // a visitor is as patient as a buyer
				defer cancel()
				_ = c.shop.Look(ctx, otherProduct)
			})
			c.change(func(r *Result) { r.Visits = waits })
		})
	}
	for n := c.First; n < c.Instances; n += c.Stride {
		instances.Go(func() {
			if err := c.serve(ctx, n); err != nil { // which affected no buyer
				c.change(func(r *Result) { r.fail(&r.Failed, fmt.Errorf("instance %d: %w", n, err)) })
			}
		})
	}
	instances.Wait()
	close(over)
	looking.Wait()
	return context.Cause(ctx)
}

// take returns what has come of it since it was taken before.
func (c *crew) take() (r Result) {
	c.change(func(now *Result) { r, *now = *now, Result{} })
	r.Requests, r.Statements = c.link.requests.Swap(0), c.shop.Statements.Swap(0)
	return r
}

// setThreshold changes that of all instances.
func (c *crew) setThreshold(n int) {
	c.mu.Lock()
	c.Threshold = n
	lockers := slices.Clone(c.lockers)
	c.mu.Unlock()
	for _, l := range lockers {
		_ = l.SetThreshold("product", n) // fails for no number that the page lets through
	}
}

// away reports whether an instance knows that it cannot reach the lock service.
func (c *crew) away() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.lockers, func(l *wllock.Locker) bool { return !l.Health().Available })
}

// serve opens the n-th instance, serves its buyers and closes it after the last. Buyers that would have come before it opened are
// not served.
func (c *crew) serve(ctx context.Context, n int) error {
	i := &instance{crew: c}
	if c.way.fenced {
		if err := i.openLocker(); err != nil {
			return err
		}
	}
	var buyers sync.WaitGroup
	for b := range c.Buyers {
		comes := c.Ramp*time.Duration(b)/time.Duration(c.Buyers) - c.Late
		if comes < 0 {
			continue
		}
		buyers.Go(func() {
			if sqlshop.Sleep(c.coming, comes) != nil {
				return // the sale ended, or was interrupted, before this buyer came
			}
			arrived := time.Now()
			c.change(func(r *Result) { r.Arrived++ })
			entered, err := c.way.sell(ctx, i, fmt.Sprintf("%d-%d", n, b))
			c.answer(arrived, entered, err)
		})
	}
	buyers.Wait()
	if i.locker == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.TTL) // after that, every lease has expired anyway
	defer cancel()
	return i.locker.Close(ctx)
}

func (c *crew) change(do func(*Result)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(&c.result)
}

func (c *crew) answer(arrived, entered time.Time, err error) {
	answered := time.Since(arrived)
	c.change(func(r *Result) {
		if !entered.IsZero() {
			r.Waits = append(r.Waits, entered.Sub(arrived))
		}
		switch {
		case err == nil:
			r.Bought++
			r.Answers = append(r.Answers, answered)
			r.Selling = time.Since(c.start)
		case errors.Is(err, sqlshop.ErrSoldOut):
			r.SoldOut++
		case errors.Is(err, errTryLater), errors.Is(err, sqlshop.ErrContended):
			r.Refused++
			r.Told = append(r.Told, answered)
		case errors.Is(err, distributed.ErrUnavailable):
			r.fail(&r.Away, err)
			r.Told = append(r.Told, answered)
		default:
			r.fail(&r.Failed, err)
		}
	})
}

const (
	otherProduct  = "other"               // what visitors look at; nobody buys it
	visitInterval = 10 * time.Millisecond // a load that no database notices
)

// visitors look at another product while the sale goes on, over the same connections: what they wait is what the sale costs
// everybody else. One comes at once and at each interval until it is over, however long the earlier ones wait. It waits for the last, and
// returns what each waited; one that could not see the page waited at least as long.
func visitors(ctx context.Context, over <-chan struct{}, look func(context.Context)) (waits []time.Duration) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards waits
	for {
		all.Go(func() {
			came := time.Now()
			look(ctx)
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, time.Since(came))
		})
		select {
		case <-time.After(visitInterval):
		case <-over:
			all.Wait()
			return waits
		}
	}
}
