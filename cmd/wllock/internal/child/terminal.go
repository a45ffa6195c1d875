//go:build unix

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// foreground returns the process group that the controlling terminal's keys are for; ok: there is such a terminal. In a namespace of its
// own a group that is outside has the number 0, for everybody who asks.
func foreground() (group int, ok bool) {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	c, err := f.SyscallConn() // Fd would change the file
	if err != nil {
		return 0, true
	}
	_ = c.Control(func(fd uintptr) { group, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	return group, true
}

// byKey reports whether the command has a signal already that this process got: from the terminal, which sends it to all of the process
// group that they share. A signal does not tell where it comes from, and one too many can be worse than one too few: many programs take
// a second SIGINT for an order to end at once, without tidying up.
func (c *Child) byKey(s syscall.Signal) bool {
	switch s {
	case syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		return true
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH:
		group, _ := foreground()
		return group == c.group
	}
	return false
}
