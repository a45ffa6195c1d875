//go:build !linux

// Package slowlink is a network with an exact delay, on Linux.
package slowlink

import (
	"errors"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// Proxy is only available on Linux.
type Proxy struct{ Addr string }

// Start fails.
func Start(string, time.Duration) (*Proxy, error) {
	return nil, errors.New("an exact delay needs Linux: choose scenarios on loopback, such as hot-8x16/loopback")
}

// Stop does nothing.
func (*Proxy) Stop() {}

// Late returns nothing.
func (*Proxy) Late() (stats.Summary, time.Duration) { return stats.Summary{}, 0 }
