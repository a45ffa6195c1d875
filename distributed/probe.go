package distributed

import (
	"context"
	"time"
)

// Prober is an optional ability of a Backend: it tells a readiness check more than Ping, which has no key and no TTL.
type Prober interface {
	// Probe returns nil if a lock of p.Key with p.TTL would be granted, and otherwise an error that says why not. It takes no lock. Whether the
	// lock is held does not matter.
	Probe(ctx context.Context, p Probe) error
}

// Probe is the lock that a Prober is asked about.
type Probe struct {
	Key string        // the full name of the lock, system:name:key
	TTL time.Duration // of its lease: T
}

// ProberOf returns the Prober of b, or of the backends that b wraps: a decorator has a method Unwrap() Backend.
func ProberOf(b Backend) (Prober, bool) { return inside[Prober](b) }
