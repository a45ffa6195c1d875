package conn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

const (
	// sentinelAddr is the address in the options of a client that finds its primary by sentinels.
	sentinelAddr = "FailoverClient"
	// busiestLook bounds how often the sentinels are asked when leases are very short.
	busiestLook = 250 * time.Millisecond
	// longestLook bounds one look. It is long because go-redis turns from a sentinel that hangs to the next only if
	// there is time left after several time-outs.
	longestLook = 30 * time.Second
)

// primary keeps all connections of a client, its subscription included, to the server that the sentinels name. go-redis
// does so only for idle connections, and for those of the client that it made itself: an old primary that is cut off
// from its sentinels, but not from us, would go on granting locks that the new one grants as well.
//
// Each new dial asks the sentinels again. The server it reaches is the primary, and connections to any other are closed.
type primary struct {
	dial dialer

	mu    sync.Mutex
	addr  string                 // guarded by mu; where the primary is
	asked time.Time              // guarded by mu; when the latest dial began that succeeded
	conns map[*followed]struct{} // guarded by mu; all open, all to addr
}

// followed is a connection to the server that was the primary when it was made.
type followed struct {
	net.Conn
	p     *primary
	moved atomic.Bool // closed because the primary has moved
}

var errMoved = keyless.Errorf("the primary has moved")

func newPrimary(dial dialer) *primary {
	return &primary{dial: dial, conns: make(map[*followed]struct{})}
}

// connect is a dialer.
func (p *primary) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	asked := time.Now()
	conn, err := p.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	f := &followed{Conn: conn, p: p}
	outdated, ok := p.add(f, asked)
	for _, old := range outdated {
		old.moved.Store(true)
		_ = old.Conn.Close()
	}
	if !ok {
		_ = conn.Close()
		return nil, errMoved
	}
	return f, nil
}

// add notes a connection and returns those to another server. If two dials reach different servers, the one that began
// later counts; false: it is not this one.
func (p *primary) add(f *followed, asked time.Time) (outdated []*followed, ok bool) {
	addr := f.RemoteAddr().String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr != p.addr {
		if asked.Before(p.asked) {
			return nil, false
		}
		for old := range p.conns {
			outdated = append(outdated, old)
		}
		clear(p.conns)
		p.addr = addr
	}
	if asked.After(p.asked) {
		p.asked = asked
	}
	p.conns[f] = struct{}{}
	return outdated, true
}

// follow looks for the primary repeatedly until ctx ends.
func (p *primary) follow(ctx context.Context, interval func() time.Duration) {
	for ctx.Err() == nil {
		parts.Pause(ctx, max(interval(), busiestLook))
		p.look(ctx)
	}
}

// look asks where the primary is.
func (p *primary) look(ctx context.Context) {
	if conn, err := bounded(p.connect, longestLook)(ctx, "tcp", sentinelAddr); err == nil {
		_ = conn.Close()
	}
}

// Close implements net.Conn.
func (f *followed) Close() error {
	f.p.mu.Lock()
	delete(f.p.conns, f)
	f.p.mu.Unlock()
	return f.Conn.Close()
}

// SyscallConn implements syscall.Conn. With it the pool sees that an idle connection was closed, before it uses it.
func (f *followed) SyscallConn() (syscall.RawConn, error) {
	if f.moved.Load() {
		return nil, net.ErrClosed
	}
	if c, ok := f.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return opaque{}, nil
}

// opaque shows nothing of a connection over TLS, so the pool takes it for a good one.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }
