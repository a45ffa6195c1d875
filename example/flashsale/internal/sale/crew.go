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

const (
	otherProduct  = "other"               // what visitors look at; nobody buys it
	visitInterval = 10 * time.Millisecond // a load that no database notices
)

// crew is one process's part of a sale in one way: every stride-th instance from first on.
type crew struct {
	Task
	Stall
	way  Way
	link *link // to the lock service, if the way has locks
	shop *sqlshop.Shop

	instances []*instance      // since open, which precedes everything else
	lockers   []*wllock.Locker // of those, if the way has fences
	start     time.Time        // of run, before its goroutines
	mu        sync.Mutex
	result    Result // guarded by mu: since it was taken
}

// open opens all connections to the database and all Lockers before the sale begins. Close the crew, also after an error.
func (c *crew) open(ctx context.Context) (err error) {
	c.link = &link{rtt: c.RTT}
	think := func(ctx context.Context) error { return sqlshop.Sleep(ctx, c.Think) }
	if c.shop, err = sqlshop.Open(c.URL, c.Pool, think); err != nil {
		return err
	}
	if c.way.Locked {
		c.link.Observable, err = c.OpenBackend(ctx, false)
	}
	if err = errors.Join(err, c.shop.Connect(ctx)); err != nil {
		return err
	}
	for n := c.First; n < c.Instances && err == nil; n += c.Stride {
		i := &instance{crew: c, n: n}
		if c.way.fenced {
			err = i.openLocker()
		}
		c.instances = append(c.instances, i)
	}
	return err
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
	var buyers, looking sync.WaitGroup
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
	for _, i := range c.instances {
		for b := range c.Buyers {
			if comes := c.Ramp*time.Duration(b)/time.Duration(c.Buyers) - c.Late; comes >= 0 { // otherwise it has gone elsewhere
				buyers.Go(func() { i.serve(ctx, comes, fmt.Sprintf("%d-%d", i.n, b)) })
			}
		}
	}
	buyers.Wait()
	close(over)
	looking.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.TTL) // after that, every lease has expired anyway
	defer cancel()
	for _, l := range c.lockers { // before the last look at the result: what a Locker releases are requests
		if err := l.Close(closing); err != nil {
			c.change(func(r *Result) { r.fail(&r.Failed, err) }) // which affected no buyer
		}
	}
	return context.Cause(ctx)
}

// away reports whether an instance knows that it cannot reach the lock service.
func (c *crew) away() bool {
	return slices.ContainsFunc(c.lockers, func(l *wllock.Locker) bool { return !l.Health().Available })
}

// take returns what has come of it since it was taken before.
func (c *crew) take() (r Result) {
	c.change(func(now *Result) { r, *now = *now, Result{} })
	r.Requests, r.Statements = c.link.requests.Swap(0), c.shop.Statements.Swap(0)
	return r
}

// serve serves a buyer, when it comes.
func (i *instance) serve(ctx context.Context, comes time.Duration, buyer string) {
	if sqlshop.Sleep(i.coming, comes) != nil {
		return // the sale ended, or was interrupted, before
	}
	if !i.way.fenced { // otherwise the Locker bounds its waits itself
		patient, cancel := context.WithTimeoutCause(ctx, i.Wait, errTryLater)
		defer cancel()
		ctx = patient
	}
	arrived := time.Now()
	i.change(func(r *Result) { r.Arrived++ })
	entered, err := i.way.sell(ctx, i, buyer)
	i.answer(arrived, entered, err)
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
