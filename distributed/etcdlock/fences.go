package etcdlock

import (
	"fmt"
	"sync"

	"github.com/wllock/wllock/distributed"
)

// A fence is made from a revision, the number of a change, which grows with every change of anything in the cluster and
// survives the deletion of keys (rule E6):
//
//	bit  63  62 .................. 16  15 ... 0
//	      0  revision (47 bits)        fence of the block
//
// A lease draws from the blocks of revisions at which it was the owner: that of the transaction that made it the owner, or
// of the look that found it so, and of its refills. Its successor was let in by the deletion of its key, which has a
// greater one. The create revision of a waiter's own key would not do: the owner before may have refilled since.
const (
	blockBits = 16 // 65536 fences for each revision
	blockSize = 1 << blockBits
	// mostRevisions fit: with 10,000 changes each second they last for 446 years. A fence has 63 bits, so that it fits into
	// an SQL BIGINT.
	mostRevisions = 1 << (63 - blockBits)
)

// fenceOf returns the first fence of a revision's block.
func fenceOf(revision int64) (uint64, error) {
	if revision <= 0 || revision >= mostRevisions {
		return 0, fmt.Errorf("etcdlock: %w: %w: no fences for revision %d: want less than %d",
			distributed.ErrUnavailable, distributed.ErrRefused, revision, int64(mostRevisions))
	}
	return uint64(revision) << blockBits, nil
}

// fences are those of one lease.
type fences struct {
	mu         sync.Mutex // guards all below
	shared     bool
	permit     bool   // set before the first use: the first of each block is left to readers that have seen the same revision
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
