//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling one of this process; nil: it has none.
type terminal struct{ f *os.File }

// controlling opens the controlling terminal.
func controlling() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{f}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.f.Close()
	}
}

// fd is the number of the open file. Unlike Fd's, it leaves the file as it is.
func (t *terminal) fd() (fd int) {
	fd = -1
	if c, err := t.f.SyscallConn(); err == nil {
		_ = c.Control(func(n uintptr) { fd = int(n) })
	}
	return fd
}

// foreground returns the process group that reads the terminal; 0: there is no terminal.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// forChild makes the child the foreground job if this process is that. A job in the background stays there.
func (t *terminal) forChild(attr *syscall.SysProcAttr) {
	if t.foreground() == unix.Getpgrp() {
		attr.Foreground, attr.Ctty = true, t.fd()
	}
}

// giveTo makes a process group the foreground job, if there is a terminal and the foreground is ours to give: the child's or our own.
func (t *terminal) giveTo(group int) {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // which stops a background process that does this
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}
