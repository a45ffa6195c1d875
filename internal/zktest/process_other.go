//go:build !linux

package zktest

import "syscall"

// dieWithParent is only known on Linux; elsewhere servers stop with Stop alone.
func dieWithParent() *syscall.SysProcAttr { return nil }
