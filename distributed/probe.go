package distributed

import (
	"context"
	"time"
)

// Prober is an optional ability of a Backend: a readiness check asks it more than Ping does, which knows no key and no TTL.
type Prober interface {
	// Probe returns nil if a lock of p.Key with p.TTL would be granted, and else an error that says why not. It takes no lock.
	// Whether the lock is held does not matter.
	Probe(ctx context.Context, p Probe) error
}

// Probe is what a Prober is asked about.
type Probe struct {
	Key string        // a full name, system:name:key, under which a lock would be taken
	TTL time.Duration // of its lease: T
}

// ProberOf finds the Prober in b or in the backends that b wraps: a decorator has a method Unwrap() Backend.
func ProberOf(b Backend) (Prober, bool) { return inside[Prober](b) }
