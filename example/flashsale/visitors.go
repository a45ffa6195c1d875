package main

import (
	"context"
	"sync"
	"time"
)

const (
	// otherProduct is what visitors look at. Nobody buys it.
	otherProduct = "other"
	// visitInterval is a load that no database notices.
	visitInterval = 10 * time.Millisecond
)

// observe lets visitors in and counts statements, with -db, until the function is called that it returns. That completes the
// result.
func (c *crew) observe(ctx context.Context) (observed func(*result)) {
	if c.sql == nil {
		return func(*result) {}
	}
	var others visitors
	sent := c.sql.Statements()
	leave := others.come(ctx, c.look)
	return func(r *result) {
		leave()
		r.Visits, r.Statements = others.waits, c.sql.Statements()-sent-others.shown
	}
}

// look shows the other product to a visitor that is as patient as a buyer.
func (c *crew) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	return c.sql.Look(ctx, otherProduct)
}

// visitors look at another product while the sale goes on, over the same connections: what they wait is what the sale costs
// everybody else.
type visitors struct {
	mu    sync.Mutex
	waits []time.Duration // guarded by mu
	shown int64           // guarded by mu; those that saw the page
	all   sync.WaitGroup
}

// come lets a visitor in at once and at each interval until stop is called, however long the earlier ones wait. stop waits for the last.
func (v *visitors) come(ctx context.Context, look func(context.Context) error) (stop func()) {
	visit := func() { v.all.Go(func() { v.visit(ctx, look) }) }
	visit()
	stopComing := every(visitInterval, visit)
	return func() {
		stopComing()
		v.all.Wait()
	}
}

// visit notes how long the page took. One that could not be shown took at least as long.
func (v *visitors) visit(ctx context.Context, look func(context.Context) error) {
	came := time.Now()
	err := look(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.shown++
	}
	v.waits = append(v.waits, time.Since(came))
}
