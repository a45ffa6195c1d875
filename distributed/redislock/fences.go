package redislock

import "sync"

const (
	// firstBlock fences come with a grant: those of a microsecond. The unused rest of a block is not returned, so
	// blocks that are taken often must be small, otherwise the fences run ahead of the clock: a microsecond for each
	// lease is less than any server takes to grant it.
	firstBlock = 1000
	// laterBlock fences come with a refill: 65 microseconds, for a lease that used half a block to pass the lock on
	// inside its process. That takes longer than 65 microseconds, and the lease then refills every 65 ms at most.
	laterBlock = 1 << 16
)

// fences is a lease's reserve of fencing tokens (rule R9). An exclusive lease and a permit give each out once, a shared one
// always the same. Only one refill is under way at a time: of two the later block could come first, and the earlier one would
// then be given out after it.
type fences struct {
	mu        sync.Mutex
	shared    bool          // guarded by mu; it has one fence
	from, to  uint64        // guarded by mu; the next fence, and the first past the block
	spare     [2]uint64     // guarded by mu; the next block, likewise; empty if equal
	half      uint64        // guarded by mu; with fewer left a refill is due
	refilling bool          // guarded by mu; one is under way
	refilled  chan struct{} // guarded by mu; closed when that is answered, or has failed; made when somebody waits for it
	closed    bool          // guarded by mu; the lease is being released
}

func (f *fences) open(first, count uint64, shared bool) {
	f.shared = shared
	f.from, f.to, f.half = first, first+count, count/2
}

// share goes on with the one fence of a shared lease.
func (f *fences) share(fence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared, f.from = true, fence
}

func (f *fences) isShared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared
}

// next returns the next fence, and whether this is the moment to refill.
func (f *fences) next() (fence uint64, ok, low bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shared {
		return f.from, !f.closed, false
	}
	if f.from == f.to {
		f.from, f.to = f.spare[0], f.spare[1]
		f.spare = [2]uint64{}
		f.half = (f.to - f.from) / 2
	}
	ok = f.from < f.to && !f.closed
	if ok {
		fence = f.from
		f.from++
	}
	low = !f.closed && !f.refilling && f.spare[0] == f.spare[1] && f.to-f.from <= f.half
	f.refilling = f.refilling || low
	return fence, ok, low
}

// refill says how to get more fences: wait for the refill under way, or (nil) ask for one; add or failed ends it.
func (f *fences) refill() (wait <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.refilling {
		f.refilling = true
		return nil
	}
	if f.refilled == nil {
		f.refilled = make(chan struct{})
	}
	return f.refilled
}

// some reports that there are fences left.
func (f *fences) some() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared || f.from < f.to || f.spare[0] < f.spare[1]
}

// last is the last one of a block that is not used up.
func (f *fences) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shared {
		return f.from
	}
	return max(f.to, f.spare[1]) - 1
}

// add takes the block of a refill. A block that is not above what was given out is dropped: a gap in the fences does no
// harm.
func (f *fences) add(first, count uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refillEnded()
	if !f.shared && f.spare[0] == f.spare[1] && first >= f.to {
		f.spare = [2]uint64{first, first + count}
	}
}

// failed allows another refill to be asked for.
func (f *fences) failed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refillEnded()
}

// refillEnded allows the next. The caller holds mu.
func (f *fences) refillEnded() {
	f.refilling = false
	if f.refilled != nil {
		close(f.refilled)
		f.refilled = nil
	}
}

// close gives out no more.
func (f *fences) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}
