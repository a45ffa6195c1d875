package etcdlock

import (
	"fmt"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
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

// blockOf returns the fences of a revision. The first is left to readers that have seen the same revision as a permit.
func blockOf(revision int64, permit bool) (driver.Block, error) {
	first, err := fenceOf(revision)
	if permit {
		return driver.Block{First: first + 1, Count: blockSize - 1}, err
	}
	return driver.Block{First: first, Count: blockSize}, err
}
