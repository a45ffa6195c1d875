package zklock

import "github.com/wllock/wllock/distributed/driver"

// A fence is made from a zxid, the number of a change of the ensemble, which grows with every change of anything and
// survives the deletion of nodes (rule Z6):
//
//	bit  63  62 ......... 44  43 ........... 12  11 ... 0
//	      0  epoch (19 bits)  counter (32 bits)  fence of the block
//
// A lease draws from the blocks of zxids that it has seen while it was the owner. Its successor was let in by a deletion, which
// has a greater zxid.
const (
	blockBits = 12 // 4096 fences for each zxid, and numbers for half a million leaders
	blockSize = 1 << blockBits
)

var fences = driver.Numbers{Name: "zxid", Bits: blockBits}
