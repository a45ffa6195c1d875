package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
)

// Memcached is one memcached.
type Memcached struct {
	server *testproc.Server
	host   *host
}

// StartMemcached starts a server.
func StartMemcached() (*Memcached, error) {
	m := new(Memcached)
	var err error
	m.host, err = onHost(func(h *host) { m.server = dbtest.Memcached(h) })
	return m, err
}

// Address implements Service.
func (m *Memcached) Address() string { return m.server.Addr }

// Version implements Service.
func (m *Memcached) Version(ctx context.Context) (string, error) {
	stats, err := m.stats(ctx)
	return "memcached " + stats["version"], err
}

// Flush does nothing: the locks of a round end with its Lockers, which have been closed.
func (m *Memcached) Flush(context.Context) error { return nil }

// Commands counts gets as "get", and add and cas as "set", as the server does.
func (m *Memcached) Commands(ctx context.Context) (map[string]int64, error) {
	stats, err := m.stats(ctx)
	if err != nil {
		return nil, err
	}
	calls := make(map[string]int64)
	for _, name := range []string{"get", "set"} {
		if calls[name], err = strconv.ParseInt(stats["cmd_"+name], 10, 64); err != nil {
			return nil, fmt.Errorf("memcached's statistics: %w", err)
		}
	}
	return calls, nil
}

// CPU implements Service.
func (m *Memcached) CPU() time.Duration { return cpuOf(m.server.Pid()) }

// Stop implements Service.
func (m *Memcached) Stop() { m.host.cleanUp() }

func (m *Memcached) stats(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.server.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(statusWait))
	if _, err := conn.Write([]byte("stats\r\n")); err != nil {
		return nil, err
	}
	stats := make(map[string]string)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if lines.Text() == "END" {
			return stats, nil
		}
		if name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "STAT "), " "); ok {
			stats[name] = value
		}
	}
	return nil, fmt.Errorf("memcached's statistics have no end")
}
