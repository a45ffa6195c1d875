package wllock

import (
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// call is what is reported about one caller: which lock it asked for, how long it waited, and what it got. It is a part
// of the caller's hold.
type call struct {
	name    *nameState
	key     string // full name
	mode    distributed.Mode
	foreign foreignWait // in the room that mode leaves, as is the next

	overstayed atomic.Bool // LockTimeMax has passed

	turn      local.Turn[*tenure.Tenure]
	turnAt    time.Time // when the caller got its turn, or, while it waits for one, when it asked
	localWait time.Duration
	use       tenure.Use
	spans     *spans // nil: not traced
}

func (c *call) distributedWait() time.Duration { return c.use.Began().Sub(c.turnAt) }
