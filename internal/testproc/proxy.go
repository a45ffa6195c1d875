package testproc

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections to a server and can delay, hold up, lose and cut traffic, also while it flows.
type Proxy struct {
	Addr string

	listener net.Listener
	pumps    sync.WaitGroup

	mu       sync.Mutex
	flow     *sync.Cond         // on mu: stalled or closed has changed
	target   string             // guarded by mu
	links    map[*Link]struct{} // guarded by mu
	delay    time.Duration      // guarded by mu; each way
	stalled  bool               // guarded by mu
	dropping bool               // guarded by mu
	closed   bool               // guarded by mu
	swallow  []byte             // guarded by mu; the reply to the next request that contains this is lost; nil: none
	cut      bool               // guarded by mu; its connection is cut, too
	lost     int                // guarded by mu; how many were lost so far
	request  Filter             // guarded by mu; nil: all passes
	reply    Filter             // guarded by mu
}

// Filter says whether bytes pass. It runs under the proxy's mutex.
type Filter func(l *Link, b []byte) bool

// Link is one connection through the proxy.
type Link struct {
	// Marked is for filters, which alone use it.
	Marked bool

	client, server net.Conn
	muted, severed bool // guarded by the proxy's mu; its replies are lost; it is cut before its next reply
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
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: make(map[*Link]struct{})}
	p.flow = sync.NewCond(&p.mu)
	p.pumps.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.set(func() { p.closed = true })
	p.Cut()
	p.pumps.Wait()
}

// SetDelay delays all traffic by d each way.
func (p *Proxy) SetDelay(d time.Duration) { p.set(func() { p.delay = d }) }

// SetHalfOpen, while on, drops all traffic and closes nothing, like a lost route.
func (p *Proxy) SetHalfOpen(on bool) { p.set(func() { p.dropping = on }) }

// Stall, while on, holds up all traffic and closes nothing. What was held up is delivered afterwards, as TCP does.
func (p *Proxy) Stall(on bool) { p.set(func() { p.stalled = on }) }

// Forward sends new connections to another server, and closes the present ones.
func (p *Proxy) Forward(target string) {
	p.Redirect(target)
	p.Cut()
}

// Redirect sends new connections to another server, as a name does that leads elsewhere.
func (p *Proxy) Redirect(target string) { p.set(func() { p.target = target }) }

// SwallowReply loses the reply to the next request that contains part. The request itself is served. Its connection stays
// open and loses all further replies.
func (p *Proxy) SwallowReply(part string) { p.set(func() { p.swallow, p.cut = []byte(part), false }) }

// LoseReply has the next request that contains part served, and its connection cut before the reply.
func (p *Proxy) LoseReply(part string) { p.set(func() { p.swallow, p.cut = []byte(part), true }) }

// Swallowed returns how many requests have lost their reply.
func (p *Proxy) Swallowed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Lost reports whether the reply that SwallowReply or LoseReply named last has been lost.
func (p *Proxy) Lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallow == nil
}

// SetFilters has requests and replies, as they arrive in pieces, pass only if the filter says so. nil: all of them.
func (p *Proxy) SetFilters(request, reply Filter) {
	p.set(func() { p.request, p.reply = request, reply })
}

// Cut closes all open connections. New ones are forwarded.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_, _ = l.client.Close(), l.server.Close()
	}
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.flow.Broadcast()
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
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &Link{client: client, server: server}
		if !p.add(l) {
			_, _ = client.Close(), server.Close()
			return
		}
		p.pumps.Go(func() { p.pump(l, server, client, p.passRequest) })
		p.pumps.Go(func() { p.pump(l, client, server, p.passReply) })
	}
}

func (p *Proxy) add(l *Link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[l] = struct{}{}
	}
	return !p.closed
}

// pump copies what pass allows, until one side closes or pass says to cut; then it closes both.
func (p *Proxy) pump(l *Link, to, from net.Conn, pass func(*Link, []byte) (ok, cut bool)) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.set(func() { delete(p.links, l) })
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.wait()
		if err != nil {
			return
		}
		ok, cut := pass(l, buf[:n])
		if cut {
			return
		}
		if !ok {
			continue
		}
		if _, err = to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// wait waits out the delay and a stall.
func (p *Proxy) wait() {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stalled && !p.closed {
		p.flow.Wait()
	}
}

func (p *Proxy) passRequest(l *Link, b []byte) (ok, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	passes := p.request == nil || p.request(l, b)
	if len(p.swallow) > 0 && bytes.Contains(b, p.swallow) {
		p.swallow, l.muted, l.severed = nil, true, p.cut
		p.lost++
	}
	return passes && !p.dropping, false
}

func (p *Proxy) passReply(l *Link, b []byte) (ok, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	passes := p.reply == nil || p.reply(l, b)
	return passes && !p.dropping && !l.muted, l.severed
}
