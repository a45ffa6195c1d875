package zktest

import (
	"bytes"
	"net"
	"sync"
)

// Proxy forwards TCP connections to a server and can hold up, lose and cut traffic, also while it flows.
type Proxy struct {
	Addr string

	listener net.Listener
	pumps    sync.WaitGroup

	mu      sync.Mutex
	flow    *sync.Cond        // on mu: stalled has changed
	target  string            // guarded by mu
	links   map[net.Conn]bool // guarded by mu; both ends of each
	stalled bool              // guarded by mu
	closed  bool              // guarded by mu
	swallow []byte            // guarded by mu; the connection of the next request that contains this is cut before the reply; nil: none
}

// NewProxy listens on a free port and forwards to target until the test ends.
func NewProxy(t TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: map[net.Conn]bool{}}
	p.flow = sync.NewCond(&p.mu)
	p.pumps.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.closed = true
		p.flow.Broadcast()
		p.mu.Unlock()
		p.Cut()
		p.pumps.Wait()
	})
	return p
}

// Stall, while on, holds up all traffic and closes nothing, like a lost route. What was held up is delivered afterwards, as
// TCP does.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	p.flow.Broadcast()
}

// Cut closes all connections; new ones are forwarded.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.links {
		_ = c.Close()
	}
}

// Forward sends new connections to another server, and closes the present ones.
func (p *Proxy) Forward(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

// LoseReply has the next request that contains part served, and its connection cut before the reply.
func (p *Proxy) LoseReply(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = []byte(part)
}

// Lost reports whether the reply of LoseReply has been lost.
func (p *Proxy) Lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallow == nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil || !p.add(client, server) {
			_ = client.Close()
			continue
		}
		lossy := new(lossy)
		p.pumps.Go(func() { p.pump(server, client, func(b []byte) bool { lossy.request(p, b); return true }) })
		p.pumps.Go(func() { p.pump(client, server, func([]byte) bool { return !lossy.loses() }) })
	}
}

func (p *Proxy) add(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = server.Close()
		return false
	}
	p.links[client], p.links[server] = true, true
	return true
}

// lossy is a connection that may lose its next reply.
type lossy struct {
	mu   sync.Mutex
	next bool // guarded by mu
}

func (l *lossy) request(p *Proxy, b []byte) {
	p.mu.Lock()
	hit := p.swallow != nil && bytes.Contains(b, p.swallow)
	if hit {
		p.swallow = nil
	}
	p.mu.Unlock()
	if hit {
		l.mu.Lock()
		l.next = true
		l.mu.Unlock()
	}
}

func (l *lossy) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// pump copies from one side to the other until either closes, or pass says to cut; then it closes both.
func (p *Proxy) pump(to, from net.Conn, pass func([]byte) bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		delete(p.links, to)
		delete(p.links, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.stalled && !p.closed {
			p.flow.Wait()
		}
		p.mu.Unlock()
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
