package child

import "syscall"

// dieWithParent has the command killed when this process is: nobody would end it when the lease has expired.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
