package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/internal/tlsfile"
)

var (
	errURL       = errors.New("memcachelock: not the URL of servers: want memcached://host:port,host:port?unfenced=true or memcacheds://, without a user")
	errParameter = errors.New("memcachelock: the URL has an unknown parameter: want unfenced=true, and with memcacheds also tls_ca, tls_cert, tls_key, tls_server_name")

	// hostPattern is one server: a name or an address, and a port.
	hostPattern = regexp.MustCompile(`^(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?$`)
)

// Open returns a Backend over the servers that a URL names, with a client of its own, which Close closes:
//
//	memcached://host[:port][,host[:port]...]?unfenced=true
//	memcacheds://host[:port][,host[:port]...]?unfenced=true[&tls_ca=...&tls_cert=...&tls_key=...&tls_server_name=...]
//
// unfenced=true is the consent of [WithUnfenced]. memcacheds is TLS. tls_ca, tls_cert and tls_key name PEM files: the certificate authorities
// of the servers (default: those of the system), a client certificate and its key. They are read again for each connection. tls_server_name
// is the name that the certificates of all servers must have, instead of their hosts. There are no users: memcached has them in SASL only,
// which the client does not support. Keys are on the servers where a client of memcache.New looks for them. An exchange may take at most a
// second, and at most T/5 of the shortest T that was requested. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	scheme, tail, _ := strings.Cut(rawURL, "://")
	hosts, query, _ := strings.Cut(tail, "?")
	secure := scheme == "memcacheds"
	if !secure && scheme != "memcached" {
		return nil, errURL
	}
	var all servers
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
		if !hostPattern.MatchString(host) {
			return nil, errURL
		}
		if strings.LastIndexByte(host, ':') <= strings.LastIndexByte(host, ']') {
			host += ":11211"
		}
		all = append(all, server(host))
	}
	files, rest, err := tlsfile.Take(query, scheme, secure)
	switch {
	case err != nil:
		return nil, fmt.Errorf("memcachelock: %w", err)
	case rest == "unfenced=true":
		opts = append([]Option{WithUnfenced()}, opts...)
	case rest != "":
		return nil, errParameter
	}
	b, err := New(memcache.NewFromSelector(all), append(opts, WithSelector(all))...)
	if err != nil {
		return nil, err
	}
	b.own = true
	b.limit.Store(int64(longestTimeout))
	b.client.Timeout, b.client.MaxIdleConns = longestTimeout, 64 // as many as callers ask at a time
	b.client.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(b.limit.Load()))
		defer cancel()
		dial := new(net.Dialer).DialContext
		if secure {
			dial = files.Dial
		}
		conn, err := dial(ctx, network, addr)
		if err != nil { // also if a certificate is refused: nothing was sent
			return nil, &net.OpError{Op: "dial", Net: network, Addr: server(addr), Err: err}
		}
		return timed{conn, &b.limit}, nil
	}
	return b, nil
}

// timed is a connection of which the client says when an exchange begins, and the Backend how long it may take.
type timed struct {
	net.Conn
	limit *atomic.Int64
}

// SetDeadline implements net.Conn.
func (c timed) SetDeadline(time.Time) error {
	return c.Conn.SetDeadline(time.Now().Add(time.Duration(c.limit.Load())))
}

// servers picks the server of a key as memcache.ServerList does, but leaves names to the dialer: they are resolved anew each time, and
// are what certificates are for.
type servers []server

// PickServer implements memcache.ServerSelector.
func (s servers) PickServer(key string) (net.Addr, error) {
	return s[crc32.ChecksumIEEE([]byte(key))%uint32(len(s))], nil
}

// Each implements memcache.ServerSelector.
func (s servers) Each(f func(net.Addr) error) error {
	for _, one := range s {
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

// server is a host and a port, as a net.Addr.
type server string

func (server) Network() string  { return "tcp" }
func (s server) String() string { return string(s) }
