//go:build !linux

package server

import "time"

// cpuOf is only known on Linux.
func cpuOf(int) time.Duration { return 0 }
