package driver

import (
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Numbers make fences of the numbers that a service gives its changes, which grow with every change of anything:
//
//	bit  63  62 ... Bits  Bits-1 ... 0
//	      0  number       fence of the block
//
// A fence has 63 bits, so that it fits into an SQL BIGINT.
type Numbers struct {
	Name string // of a number, in errors
	Bits int    // for the fences of one number
}

// Block returns the fences of a number. The first is left to readers that have seen the same number as a permit.
func (n Numbers) Block(number int64, permit bool) (Block, error) {
	if most := int64(1) << (63 - n.Bits); number <= 0 || number >= most {
		return Block{}, keyless.Errorf("%w: %w: no fences for the %s %#x: want less than %#x", distributed.ErrUnavailable, distributed.ErrRefused, n.Name, number, most)
	}
	b := Block{First: uint64(number) << n.Bits, Count: 1 << n.Bits}
	if permit {
		return Block{First: b.First + 1, Count: b.Count - 1}, nil
	}
	return b, nil
}

// Last returns the last fence of a number, or 0 if it has none.
func (n Numbers) Last(number int64) uint64 {
	b, err := n.Block(number, false)
	if err != nil {
		return 0
	}
	return b.First + b.Count - 1
}
