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

// over waits until nothing of the command's process group is left, but not for longer than d.
func (c *Child) over(d time.Duration) bool {
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(groupPoll) {
		if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
			<-c.done
			return true
		}
	}
	return false
}

func dieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
