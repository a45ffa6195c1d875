package sqllock

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// rowShare is which part of the places at the gate the calls for one lock have at most: its row lets in one after the other.
const rowShare = 3

// gates let so many calls use a connection at a time.
type gates struct {
	all chan struct{} // a place for each call

	mu   sync.Mutex
	rows map[string]*row // guarded by mu; of locks that calls are under way for
}

// row is the gate of one lock, while there are calls for it.
type row struct {
	gate  chan struct{}
	calls int // guarded by gates.mu
}

// pass passes the lock's gate and then that of all, until leave, so that one whose row somebody keeps locked leaves places to the others
// (rule D10). Those of SQLite may have to ask for longer: see again.
func (b *Backend) pass(ctx context.Context, a *attempt) error {
	for {
		err := b.passAll(ctx, a)
		if err == nil || !b.again(ctx, a) {
			return err
		}
	}
}

func (b *Backend) passAll(ctx context.Context, a *attempt) error {
	w := &a.Wire
	w.began = time.Now()
	r := b.gates.join(w.name)
	if err := passOne(ctx, a.Window, r.gate); err != nil {
		b.gates.part(w.name, r)
		return distributed.Unavailable("sqllock: enter", keyless.Errorf("the row of this lock keeps %d calls waiting: %w", cap(r.gate), err))
	}
	w.row = r
	if err := passOne(ctx, time.Until(w.began.Add(a.Window)), b.gates.all); err != nil {
		<-r.gate
		b.gates.part(w.name, r)
		w.row = nil
		err = keyless.Errorf("all %d connections for calls are in use (WithParallel): %w", cap(b.gates.all), err)
		return distributed.Unavailable("sqllock: enter", err, distributed.ErrUnreached)
	}
	return nil
}

// leave gives back the places at both gates, once.
func (b *Backend) leave(a *attempt) {
	r := a.Wire.row
	if a.Wire.row = nil; r != nil {
		<-b.gates.all
		<-r.gate
		b.gates.part(a.Wire.name, r)
	}
}

func passOne(ctx context.Context, patience time.Duration, gate chan struct{}) error {
	select {
	case gate <- struct{}{}:
		return nil
	default:
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case gate <- struct{}{}:
		return nil
	case <-within.Done():
		return cmp.Or(ctx.Err(), within.Err())
	}
}

// join returns the gate of a lock, until part.
func (g *gates) join(name string) *row {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.rows[name]
	if r == nil {
		r = &row{gate: make(chan struct{}, max(1, cap(g.all)/rowShare))}
		g.rows[name] = r
	}
	r.calls++
	return r
}

func (g *gates) part(name string, r *row) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.calls--; r.calls == 0 {
		delete(g.rows, name)
	}
}
