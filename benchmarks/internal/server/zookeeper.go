package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/zktest"
)

// statusWait bounds an answer to a question about the server's state.
const statusWait = 5 * time.Second

// ZooKeeper is one server without fsync, as the tests have it.
type ZooKeeper struct {
	server *zktest.Server
	host   *host
}

// StartZooKeeper starts a server and waits until it answers. Stop it at the end.
func StartZooKeeper() (*ZooKeeper, error) {
	if err := zktest.Missing(); err != nil {
		return nil, fmt.Errorf("the benchmarks need ZooKeeper: %w", err)
	}
	z := new(ZooKeeper)
	var err error
	z.host, err = onHost(func(h *host) { z.server = zktest.Start(h) })
	return z, err
}

// Address implements Service.
func (z *ZooKeeper) Address() string { return z.server.Addr }

// Version implements Service.
func (z *ZooKeeper) Version(ctx context.Context) (string, error) {
	text, err := z.status(ctx, "Zookeeper version: ")
	version, _, _ := strings.Cut(text, "-")
	return "ZooKeeper " + version, err
}

// Flush does nothing: the locks of a round end with its sessions, which have been closed.
func (z *ZooKeeper) Flush(context.Context) error { return nil }

// Commands counts the packets of all clients as "request", pings of idle connections and this question included.
func (z *ZooKeeper) Commands(ctx context.Context) (map[string]int64, error) {
	text, err := z.status(ctx, "Received: ")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return map[string]int64{"request": n}, err
}

// CPU implements Service.
func (z *ZooKeeper) CPU() time.Duration { return cpuOf(z.server.Pid()) }

// Stop implements Service.
func (z *ZooKeeper) Stop() { z.host.cleanUp() }

// status returns the rest of the line of the server's state that begins with prefix.
func (z *ZooKeeper) status(ctx context.Context, prefix string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", z.server.Addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(statusWait))
	if _, err = conn.Write([]byte("srvr")); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest), nil
		}
	}
	return "", errors.Join(fmt.Errorf("ZooKeeper's state has no %q", prefix), err)
}
