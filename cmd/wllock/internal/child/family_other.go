//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
	"time"
)

// groupPoll is how often the end of a process group is looked for: there is no event for it.
const groupPoll = 10 * time.Millisecond

// adopt: orphans are children of process 1 here.
func adopt() {}

// family is the command: its children are those of its process group.
func (c *Child) family() []Process { return c.alone() }

// over waits until the command has ended, and all of a process group of its own, but not for longer than d.
func (c *Child) over(d time.Duration) bool {
	late := time.After(d)
	select {
	case <-c.done:
	case <-late:
		return false
	}
	for c.own && !errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
		select {
		case <-time.After(groupPoll):
		case <-late:
			return false
		}
	}
	return true
}

func dieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
