package redistest

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections to a server and can delay, lose and cut traffic, also while it flows.
type Proxy struct {
	Addr string

	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]struct{}
	delay    time.Duration // each way
	halfOpen bool          // nothing passes, nothing is closed
	silent   bool          // what is published does not reach subscribers
	swallow  []byte        // the reply to the next request that contains this is lost; empty: none
	swallows int           // how many were lost so far
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	mu             sync.Mutex
	subscriber     bool // it has sent a SUBSCRIBE
	muted          bool // its replies are lost from now on
}

// Cleaner is the part of a testing.TB that a Proxy needs.
type Cleaner interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// NewProxy listens on a free port and forwards to target until the test ends.
func NewProxy(t Cleaner, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: make(map[*link]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.SetHalfOpen(false)
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// SetDelay delays all traffic by d each way.
func (p *Proxy) SetDelay(d time.Duration) { p.set(func() { p.delay = d }) }

// SetHalfOpen, while on, drops all traffic and closes nothing, like a lost route.
func (p *Proxy) SetHalfOpen(on bool) { p.set(func() { p.halfOpen = on }) }

// SetSilent, while on, loses published messages; subscriptions and pings are still answered.
func (p *Proxy) SetSilent(on bool) { p.set(func() { p.silent = on }) }

// SwallowReply loses the reply to the next request that contains part. The request itself is served. Its connection stays
// open and loses all further replies.
func (p *Proxy) SwallowReply(part string) { p.set(func() { p.swallow = []byte(part) }) }

// Swallowed returns how many replies SwallowReply has lost.
func (p *Proxy) Swallowed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallows
}

// Cut closes all open connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_ = l.client.Close()
		_ = l.server.Close()
	}
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{client: client, server: server}
		p.set(func() { p.links[l] = struct{}{} })
		p.wg.Go(func() { p.pump(l, server, client, p.request) })
		p.wg.Go(func() { p.pump(l, client, server, p.reply) })
	}
}

// pump copies what pass allows, until one side closes; then it closes the other.
func (p *Proxy) pump(l *link, to, from net.Conn, pass func(*link, []byte) bool) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
		p.set(func() { delete(p.links, l) })
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		if !pass(l, buf[:n]) {
			continue
		}
		if _, err = to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) request(l *link, b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(bytes.ToLower(b), []byte("\r\nsubscribe\r\n")) {
		l.subscriber = true
	}
	if len(p.swallow) > 0 && bytes.Contains(b, p.swallow) {
		p.swallow, l.muted = nil, true
		p.swallows++
	}
	return !p.halfOpen
}

func (p *Proxy) reply(l *link, b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	published := l.subscriber && bytes.Contains(b, []byte("\r\nmessage\r\n"))
	return !p.halfOpen && !l.muted && !(p.silent && published)
}
