package redislock

import (
	"strconv"
	"sync"
	"time"
)

const (
	// firstBlock fences come with a grant: those of a microsecond. What of a block is not used is not given back, so
	// blocks that are taken often must be small, or the fences run ahead of the clock: a microsecond for each lease is
	// less than any server takes to grant it.
	firstBlock = 1000
	// laterBlock fences come with a refill: 65 microseconds, for a lease that used half a block to pass the lock on
	// inside its process, which takes longer, and which then refills every 65 ms at most.
	laterBlock = 1 << 16

	fenceDigits = 19
)

// fences is a lease's reserve. An exclusive lease gives each out once, a shared one always the same. One refill is under
// way at a time: of two the later block could come first, and the earlier one would then be given out after it.
type fences struct {
	shared bool // set by open, then read only

	mu        sync.Mutex
	from, to  uint64        // guarded by mu; the next to give, and the first past the block
	spare     [2]uint64     // guarded by mu; the block after, the same way; empty if equal
	half      uint64        // guarded by mu; with fewer left a refill is due
	refilling bool          // guarded by mu; one was asked for
	refilled  chan struct{} // guarded by mu; closed when that is answered, or given up; made when somebody waits for it
	closed    bool          // guarded by mu; the lease is being released
}

func (f *fences) open(first, count uint64, shared bool) {
	f.shared = shared
	f.from, f.to, f.half = first, first+count, count/2
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

// refill says what to do for more fences: wait for the refill under way, or (nil) ask for one, which add or failed ends.
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

// some reports that there are fences to give.
func (f *fences) some() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared || f.from < f.to || f.spare[0] < f.spare[1]
}

// add takes the block that a refill has brought. One that is not above what was given out is dropped: a gap in the fences
// is nothing.
func (f *fences) add(first, count uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over()
	if f.spare[0] == f.spare[1] && first >= f.to {
		f.spare = [2]uint64{first, first + count}
	}
}

// failed allows another refill to be asked for.
func (f *fences) failed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over()
}

// over ends a refill. The caller holds mu.
func (f *fences) over() {
	f.refilling = false
	if f.refilled != nil {
		close(f.refilled)
		f.refilled = nil
	}
}

// close ends the giving.
func (f *fences) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// fenceArg is a fence as an argument of the scripts.
func fenceArg(fence uint64) any {
	if fence >= 1e18 {
		return fence // has its digits anyway, and is written straight into the connection's buffer
	}
	return string(appendFence(nil, fence))
}

// appendFence writes a fence the way the scripts compare them: as 19 digits.
func appendFence(b []byte, fence uint64) []byte {
	for least := uint64(1e18); fence < least && least > 1; least /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, fence, 10)
}

// parseFence reads what a script wrote; anything else is 0, which no store accepts after a fence.
func parseFence(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// microsecond reads the short reply of enter; ok is false if it is another.
func microsecond(reply string, sent time.Time) (g grant, ok bool) {
	if len(reply) != fenceDigits-3 {
		return grant{}, false
	}
	us, err := strconv.ParseUint(reply, 10, 64)
	return grant{fence: us * 1000, count: 1000, since: sent}, err == nil
}

// readGrant reads a "lease" reply to a question that was sent then.
func readGrant(c *call, sent time.Time) grant {
	return grant{fence: parseFence(c.word(1)), count: uint64(c.number(2)), wanted: c.number(3) == 1, since: sent}
}
