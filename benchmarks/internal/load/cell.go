package load

import "time"

// cell is what a key's lock protects: plain memory, on purpose not atomic. Two workers inside at once overwrite each other's
// mark or lose an increment, and both are detected.
type cell struct {
	owner   int // the worker inside, counted from 1; 0: none
	entered int64

	// for hand-overs
	left     time.Time
	instance int // which one was inside last, counted from 1; 0: none so far
}

// enter marks the cell as w's and reports whether it was free. Not inlined, nor is leave: the compiler might otherwise
// conclude that the mark cannot have changed in between.
//
//go:noinline
func (c *cell) enter(w int) bool {
	free := c.owner == 0
	c.owner = w
	c.entered++
	return free
}

// leave reports whether the cell still was w's, and frees it.
//
//go:noinline
func (c *cell) leave(w int) bool {
	still := c.owner == w
	c.owner = 0
	return still
}
