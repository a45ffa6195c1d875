package redistest

import (
	"bytes"
	"sync/atomic"

	"github.com/wllock/wllock/internal/testproc"
)

// Proxy forwards TCP connections to a server and can delay, lose and cut traffic, also while it flows.
type Proxy struct {
	*testproc.Proxy
	silent atomic.Bool
}

// NewProxy listens on a free port and forwards to target until the test ends.
func NewProxy(t testproc.Cleaner, target string) *Proxy {
	t.Helper()
	p := &Proxy{Proxy: testproc.NewProxy(t, target)}
	p.SetFilters(p.request, p.reply)
	return p
}

// SetSilent, while on, loses published messages. Subscriptions and pings are still answered.
func (p *Proxy) SetSilent(on bool) { p.silent.Store(on) }

// request marks the connections of subscribers.
func (p *Proxy) request(l *testproc.Link, b []byte) bool {
	if bytes.Contains(bytes.ToLower(b), []byte("\r\nsubscribe\r\n")) {
		l.Marked = true
	}
	return true
}

func (p *Proxy) reply(l *testproc.Link, b []byte) bool {
	return !(p.silent.Load() && l.Marked && bytes.Contains(b, []byte("\r\nmessage\r\n")))
}
