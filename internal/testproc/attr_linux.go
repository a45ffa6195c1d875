package testproc

import "syscall"

// dieWithParent makes a server end with the test binary, also when that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
