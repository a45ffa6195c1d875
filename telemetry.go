package wllock

// telemetry is what a Locker reports to OpenTelemetry.
type telemetry struct{}

func newTelemetry(l *Locker) (*telemetry, error) { return nil, nil }
