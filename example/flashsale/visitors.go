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
