package etcdlock

import "github.com/wllock/wllock/distributed/driver"

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
	blockBits = 16 // 65536 fences for each revision. With 10,000 changes each second revisions last for 446 years
	blockSize = 1 << blockBits
)

var fences = driver.Numbers{Name: "revision", Bits: blockBits}
