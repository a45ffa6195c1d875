package load

import (
	"sync/atomic"
	"time"
)

// cell is what a key's lock protects: plain memory, on purpose not atomic. Two workers inside at once overwrite each other's
// mark or lose an increment, and both are detected.
type cell struct {
	owner   int // the worker inside, counted from 1; 0: none
	entered int64
	fence   uint64 // of the worker that was inside last

	readers atomic.Int32 // inside at this moment

	inside atomic.Int32 // holders of permits

	// for hand-overs
	left     time.Time
	instance int // which one was inside last, counted from 1; 0: none so far
}

// enter marks the cell as w's and reports whether it was free. Not inlined, nor is leave: the compiler might otherwise
// conclude that the mark cannot have changed in between.
//
//go:noinline
func (c *cell) enter(w int) bool {
	free := c.owner == 0 && c.readers.Load() == 0
	c.owner = w
	c.entered++
	return free
}

// leave reports whether the cell still was w's, and frees it.
//
//go:noinline
func (c *cell) leave(w int) bool {
	still := c.owner == w && c.readers.Load() == 0
	c.owner = 0
	return still
}

// grew takes the fence of the worker inside, and reports whether it is above that of the one before.
func (c *cell) grew(fence uint64) bool {
	above := fence > c.fence
	c.fence = fence
	return above
}

// enterShared counts a reader and reports whether no writer is inside. Not inlined, nor is leaveShared: see enter.
//
//go:noinline
func (c *cell) enterShared() bool {
	c.readers.Add(1)
	return c.owner == 0
}

// leaveShared reports whether still no writer is inside, and counts the reader out.
//
//go:noinline
func (c *cell) leaveShared() bool {
	still := c.owner == 0
	c.readers.Add(-1)
	return still
}
