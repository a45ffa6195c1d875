package zktest

import "github.com/wllock/wllock/internal/testproc"

// Proxy forwards TCP connections to a server and can hold up, lose and cut traffic, also while it flows.
type Proxy = testproc.Proxy

// NewProxy listens on a free port and forwards to target until the test ends.
func NewProxy(t testproc.Cleaner, target string) *Proxy {
	t.Helper()
	return testproc.NewProxy(t, target)
}
