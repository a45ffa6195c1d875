package testproc

import (
	"os"
	"syscall"
)

// dieWithParent makes a server end with the test binary, also when that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// lock locks a file until it is closed. It reports false if another has done so.
func lock(f *os.File) bool { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil }
