package zklock

import (
	"fmt"
	"sync"

	"github.com/wllock/wllock/distributed"
)

// A fence is made from a zxid, the number of a change of the ensemble, which grows with every change of anything and
// survives the deletion of nodes (rule Z6):
//
//	bit  63  62 ......... 44  43 ........... 12  11 ... 0
//	      0  epoch (19 bits)  counter (32 bits)  fence of the block
//
// A lease draws from the blocks of zxids that it has seen while it was the owner. Its successor was let in by a deletion, which
// has a greater zxid.
const (
	blockBits = 12 // 4096 fences for each zxid
	blockSize = 1 << blockBits
	// mostEpochs is the number of leaders that fit. A fence has 63 bits, so that it fits into an SQL BIGINT.
	mostEpochs = 1 << (63 - 32 - blockBits)
)

// fenceOf returns the first fence of a zxid's block.
func fenceOf(zxid int64) (uint64, error) {
	if epoch := zxid >> 32; zxid <= 0 || epoch >= mostEpochs {
		return 0, fmt.Errorf("zklock: %w: %w: no fences for the zxid %#x: the ensemble has had more than %d leaders",
			distributed.ErrUnavailable, distributed.ErrRefused, zxid, mostEpochs-1)
	}
	return uint64(zxid) << blockBits, nil
}

// fences are those of one lease.
type fences struct {
	mu         sync.Mutex // guards all below
	shared     bool
	permit     bool   // set before the first use: the first of each block is left to readers that have seen the same zxid
	next, last uint64 // of an exclusive lease: the next to draw, and the first that is not ours; of a shared one: next alone
}

// open takes the block that begins at first. The rest of the block before is dropped.
func (f *fences) open(first uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shared && first >= f.last { // answers may overtake each other
		f.next, f.last = first, first+blockSize
		if f.permit {
			f.next++
		}
	}
}

// share makes first the only fence.
func (f *fences) share(first uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared, f.next = true, first
}

// draw returns the next fence; low is true once for each block, when half of it is used.
func (f *fences) draw() (fence uint64, ok, low bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.shared:
		return f.next, true, false
	case f.next == f.last:
		return 0, false, false
	}
	f.next++
	return f.next - 1, true, f.last-f.next == blockSize/2
}

func (f *fences) isShared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared
}
