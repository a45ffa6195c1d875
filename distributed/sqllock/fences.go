package sqllock

import "sync"

// fences are those of one lease: a block, from which it alone draws; or the one of a shared lease without a limit. So a lease that was lost never
// draws above its successor, whose block begins where this one ends, or later.
type fences struct {
	mu     sync.Mutex // guards all below
	shared bool
	closed bool  // a release has begun: nothing is drawn any more, for the rest is returned
	drawn  int64 // the last one that was drawn; of a shared lease: the one
	last   int64 // of the block
	asked  bool  // a refill is under way
}

// lowFences is how many are left when more are fetched in the background.
const lowFences = fenceBlock / 2

func (f *fences) open(last, count int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = false
	if f.shared || last <= f.last {
		return // answers may overtake each other
	}
	if last-count != f.last {
		f.drawn = last - count // others have had fences since: the rest of the block before is dropped
	}
	f.last = last
}

// share makes one fence the only one.
func (f *fences) share(one int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shared {
		f.shared, f.drawn, f.last = true, one, one
	}
}

// draw returns the next fence. low: the caller has to ask for more.
func (f *fences) draw() (fence uint64, ok, low bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.shared:
		return uint64(f.drawn), true, false
	case f.closed || f.drawn == f.last:
		return 0, false, false
	}
	f.drawn++
	low = !f.asked && f.last-f.drawn < lowFences
	f.asked = f.asked || low
	return uint64(f.drawn), true, low
}

func (f *fences) failed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = false
}

// end draws no more and returns what is left, for the release.
func (f *fences) end(token string, seat bool) handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return handle{token: token, last: f.last, drawn: f.drawn, seat: seat}
}

func (f *fences) isShared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared
}
