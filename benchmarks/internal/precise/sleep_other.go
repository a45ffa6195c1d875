//go:build !linux

// Package precise sleeps for short times; exactly so on Linux only.
package precise

import "time"

// Sleep pauses the calling goroutine for d.
func Sleep(d time.Duration) { time.Sleep(d) }
