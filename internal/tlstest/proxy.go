package tlstest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// Proxy speaks TLS for a server that does not, PostgreSQL among them. A connection that begins in plain text is forwarded as it is:
// sentinels use the addresses that they tell clients.
type Proxy struct {
	Addr string

	listener net.Listener
	pumps    sync.WaitGroup

	target string

	mu     sync.Mutex
	config *tls.Config       // guarded by mu; for new connections
	conns  map[net.Conn]bool // guarded by mu; all that are open; nil: closed
}

// NewProxy listens until the test ends.
func NewProxy(t testing.TB, target string, server Pair, clients string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, target: target, conns: map[net.Conn]bool{}}
	p.Show(t, server, clients)
	p.pumps.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut(nil)
		p.pumps.Wait()
	})
	return p
}

// Show has the proxy show a certificate, and demand one of the authority in the file clients, if that is not "". It cuts all
// connections.
func (p *Proxy) Show(t testing.TB, server Pair, clients string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	if clients != "" {
		text, err := os.ReadFile(clients)
		if err != nil {
			t.Fatal(err)
		}
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		c.ClientCAs.AppendCertsFromPEM(text)
	}
	p.mu.Lock()
	p.config = c
	p.mu.Unlock()
	p.cut(map[net.Conn]bool{})
}

func (p *Proxy) cut(next map[net.Conn]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = next
}

// keep notes a connection, which cut closes.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns != nil {
		p.conns[c] = true
	}
	return p.conns != nil
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() {
			defer p.drop(c)
			if p.keep(c) {
				p.serve(c)
			}
		})
	}
}

func (p *Proxy) serve(raw net.Conn) {
	p.mu.Lock()
	config := p.config
	p.mu.Unlock()
	client, err := p.begin(raw, config)
	if err != nil {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	p.pumps.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
}

// begin returns the connection to a client, after the handshake if it wants one.
func (p *Proxy) begin(raw net.Conn, config *tls.Config) (net.Conn, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(raw, first); err != nil {
		return nil, err
	}
	if first[0] == postgresAsks[0] {
		if _, err := io.ReadFull(raw, make([]byte, len(postgresAsks)-1)); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(raw, "S"); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(raw, first); err != nil {
			return nil, err
		}
	}
	begun := &begun{raw, first}
	if first[0] != handshake {
		return begun, nil
	}
	secure := tls.Server(begun, config)
	err := secure.Handshake()
	if err != nil { // the client may be sending: a close now might overtake what it is told
		_ = raw.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.Copy(io.Discard, raw)
		return nil, errors.Join(err, raw.Close())
	}
	return secure, nil
}

const (
	// handshake is the first byte of TLS.
	handshake = 22
	// postgresAsks is what a client of PostgreSQL asks before: whether the server speaks TLS.
	postgresAsks = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
)

// begun is a connection of which some bytes have been read.
type begun struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (b *begun) Read(to []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(to)
	}
	n := copy(to, b.first)
	b.first = b.first[n:]
	return n, nil
}
