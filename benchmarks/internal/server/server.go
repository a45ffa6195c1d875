// Package server starts the servers of the benchmarks and reads what they count.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// startTries is how many ports are tried if one has been taken meanwhile.
	startTries = 10
	// readyWait bounds the wait for the first answer: long, because the machine may be busy.
	readyWait = 10 * time.Second
)

// Server is a running redis-server on a loopback port that stores nothing on disk.
type Server struct {
	Addr string

	cmd    *exec.Cmd
	output bytes.Buffer // read once exited is closed
	exited chan struct{}
	dir    string
	client *redis.Client // for the benchmarks' own commands
}

// Start starts a server on a free port and waits until it answers. Stop it at the end; on Linux it also ends with this
// process, however that ends.
func Start(ctx context.Context) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("the benchmarks need redis-server: %w", err)
	}
	var last error
	for range startTries {
		s, err := startOnce(ctx)
		if err == nil {
			return s, nil
		}
		last = errors.Join(err, ctx.Err())
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func startOnce(ctx context.Context) (*Server, error) {
	addr, port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wllock-bench")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, dir: dir, exited: make(chan struct{})}
	s.cmd = exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.launch(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	s.client = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1})
	if err := s.ready(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("%w\n%s", err, s.output.String())
	}
	return s, nil
}

func freePort() (addr, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	addr = l.Addr().String()
	_, port, err = net.SplitHostPort(addr)
	return addr, port, errors.Join(err, l.Close())
}

// launch starts the process on a thread that lives as long as it does: Linux sends a child's death signal when the
// thread that started it ends.
func (s *Server) launch() error {
	started := make(chan error, 1)
	go func() {
		defer close(s.exited)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
		}
	}()
	return <-started
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		if s.client.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("redis-server ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Address implements Service.
func (s *Server) Address() string { return s.Addr }

// CPU returns the CPU time the server has used.
func (s *Server) CPU() time.Duration { return cpuOf(s.cmd.Process.Pid) }

// Stop ends the server and removes what it left.
func (s *Server) Stop() {
	_ = s.client.Close()
	_ = s.cmd.Process.Kill()
	<-s.exited
	_ = os.RemoveAll(s.dir)
}

// Flush removes all keys and makes the server forget its statistics.
func (s *Server) Flush(ctx context.Context) error {
	return errors.Join(s.client.FlushAll(ctx).Err(), s.client.ConfigResetStat(ctx).Err())
}
