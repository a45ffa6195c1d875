package zklock

import (
	"fmt"

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
