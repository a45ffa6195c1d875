//go:build !linux

package testproc

import (
	"os"
	"syscall"
)

// dieWithParent is only known on Linux; elsewhere servers stop in Cleanup alone.
func dieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

// lock is only known on Linux; elsewhere a port may be taken before its server has it, which is then tried on another.
func lock(*os.File) bool { return true }
