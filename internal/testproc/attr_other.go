//go:build !linux

package testproc

import "syscall"

// dieWithParent is only known on Linux; elsewhere servers stop in Cleanup alone.
func dieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
