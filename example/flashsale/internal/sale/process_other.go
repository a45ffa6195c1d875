//go:build !linux

package sale

import "syscall"

// dieWithParent is only known on Linux. Elsewhere a lock service stays when its parent is killed; shops end with their input.
func dieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
