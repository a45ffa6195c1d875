//go:build !linux

package server

import (
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

// CPU is only known on Linux.
func (s *Server) CPU() time.Duration { return 0 }

// OwnCPU is only known on Linux.
func OwnCPU() time.Duration { return 0 }
