package parts

import (
	"context"
	"sync"

	"github.com/wllock/wllock/distributed"
)

// Fences are those of one lease: a block, from which it alone draws, or the one fence of a shared lease. So a lease that was lost never
// draws above its successor, whose block begins where this one ends, or later. The zero value has none.
type Fences struct {
	mu      sync.Mutex    // guards all below
	shared  bool          // drawn is the only one; 0: there is none yet
	closed  bool          // the lease is being released
	drawn   uint64        // the last one that was drawn
	last    uint64        // of the block
	low     uint64        // more are to be fetched when this one is drawn
	filling chan struct{} // closed when the Refill under way has ended; nil: there is none
}

// Open takes a block of so many. The rest of the one before is dropped, unless this one goes on from there. A shared lease takes the
// first, if it has none.
func (f *Fences) Open(first, count uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.shared && f.drawn == 0:
		f.drawn = first
	case f.shared, count == 0, first <= f.last: // answers may overtake each other
		return
	case first != f.last+1:
		f.drawn = first - 1
	}
	f.last, f.low = first+count-1, first+count/2-1
}

// Share makes one fence the only one. 0: it is to be fetched, or there are none at all.
func (f *Fences) Share(one uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shared || f.drawn == 0 {
		f.shared, f.drawn, f.last = true, one, one
	}
}

// Draw returns the next fence. low is true once for each block, when half of it is used.
func (f *Fences) Draw() (fence uint64, ok, low bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return 0, false, false
	case f.shared:
		return f.drawn, f.drawn > 0, false
	case f.drawn == f.last:
		return 0, false, false
	}
	f.drawn++
	return f.drawn, true, f.drawn == f.low
}

// Refill asks for a block and takes it, unless the lease has its one fence. It waits for a Refill that is under way rather than ask again.
func (f *Fences) Refill(ctx context.Context, ask func() (first, count uint64, err error)) error {
	f.mu.Lock()
	for f.filling != nil {
		filling := f.filling
		f.mu.Unlock()
		select {
		case <-filling:
		case <-ctx.Done():
			return distributed.Unavailable("refill", ctx.Err())
		}
		f.mu.Lock()
		if f.drawn < f.last {
			f.mu.Unlock()
			return nil
		}
	}
	if f.shared && f.drawn > 0 {
		f.mu.Unlock()
		return nil
	}
	f.filling = make(chan struct{})
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(f.filling)
		f.filling = nil
	}()
	first, count, err := ask()
	if err == nil {
		f.Open(first, count)
	}
	return err
}

// IsShared reports that there is one fence only.
func (f *Fences) IsShared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared
}

// Close gives out no more. It returns the last one that was drawn, and the last of the block, which no other lease has had.
func (f *Fences) Close() (drawn, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.drawn, f.last
}
