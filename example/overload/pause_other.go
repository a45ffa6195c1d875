//go:build !linux

package main

import "time"

// pause is a sleep; an exact one on Linux only.
func pause(d time.Duration) { time.Sleep(d) }
