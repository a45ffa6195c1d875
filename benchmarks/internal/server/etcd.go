package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/etcdtest"
)

// Etcd is one member, which syncs its log to the disk.
type Etcd struct {
	server *etcdtest.Server
	host   *host
	client http.Client
}

// StartEtcd starts a server.
func StartEtcd() (*Etcd, error) {
	e := new(Etcd)
	var err error
	e.host, err = onHost(func(h *host) { e.server = etcdtest.Start(h) })
	return e, err
}

// Address implements Service.
func (e *Etcd) Address() string { return e.server.Addr }

// Version implements Service.
func (e *Etcd) Version(ctx context.Context) (string, error) {
	text, err := e.get(ctx, "/version")
	if err != nil {
		return "", err
	}
	var v struct {
		Server string `json:"etcdserver"`
	}
	err = json.Unmarshal(text, &v)
	return "etcd " + v.Server, err
}

// Flush does nothing: the locks of a round end with its sessions, which have been closed.
func (e *Etcd) Flush(context.Context) error { return nil }

// Commands counts the messages of all clients as "request", those of streams included: keepalives, and the beginnings and ends of
// watches.
func (e *Etcd) Commands(ctx context.Context) (map[string]int64, error) {
	text, err := e.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	sum, found := 0.0, false
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if line, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{"); ok {
			_, value, _ := strings.Cut(line, "} ")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("etcd's metrics: %w", err)
			}
			sum, found = sum+n, true
		}
	}
	if !found {
		return nil, errors.New("etcd's metrics have no grpc_server_msg_received_total")
	}
	return map[string]int64{"request": int64(sum)}, nil
}

// CPU implements Service.
func (e *Etcd) CPU() time.Duration { return cpuOf(e.server.Pid()) }

// Stop implements Service.
func (e *Etcd) Stop() {
	e.client.CloseIdleConnections()
	e.host.cleanUp()
}

func (e *Etcd) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.server.Addr+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := e.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}
