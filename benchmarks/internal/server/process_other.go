//go:build !linux

package server

import (
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

// cpuOf is only known on Linux.
func cpuOf(int) time.Duration { return 0 }

// OwnCPU is only known on Linux.
func OwnCPU() time.Duration { return 0 }

// cpuOfTree knows nothing elsewhere either.
func cpuOfTree(int) time.Duration { return 0 }
