package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// lockService is the lock service of the page: a Redis of its own, which may be killed, or the user's -backend, which may not.
type lockService struct {
	name  string
	url   string
	proc  *process // nil: it is the user's, or is down
	path  string   // of the program; "": it is the user's
	dir   string
	up    bool
	since time.Time // of the last change
}

// errNoRedis says what to do where there is no Redis.
var errNoRedis = errors.New("no redis-server in PATH: install it (apt install redis-server, brew install redis) and reload, " +
	"or start with -backend redis://host:port")

// findService chooses the lock service. It is reached over a socket in dir, which nobody else can open, on no port.
func findService(backend, dir string) (lockService, error) {
	if backend != memoryURL {
		return lockService{name: "the lock service of -backend", url: backend, up: true}, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return lockService{name: "Redis", url: "unix://" + filepath.Join(dir, socketName), path: path, dir: dir}, nil
		}
	}
	return lockService{}, errNoRedis
}

const socketName = "redis.sock"

// command starts Redis with an append-only file: what it has acknowledged is in the kernel's hands, so a kill forgets nothing.
func (s *lockService) command() *exec.Cmd {
	cmd := exec.Command(s.path, "--port", "0", "--unixsocket", filepath.Join(s.dir, socketName), "--unixsocketperm", "700",
		"--dir", s.dir, "--save", "", "--appendonly", "yes", "--logfile", "redis.log", "--daemonize", "no")
	cmd.Dir = s.dir
	return cmd
}

// serviceStart is long, because the machine may be busy.
const serviceStart = 20 * time.Second

// answers waits until the lock service does.
func answers(ctx context.Context, url string, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, serviceStart)
	defer cancel()
	for {
		err := pingOnce(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("the lock service has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the lock service does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func pingOnce(ctx context.Context, url string) error {
	b, err := openBackend(url)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	return b.Ping(ctx)
}

// stop ends the service cleanly.
func (s *lockService) stop(grace time.Duration) {
	if s.proc != nil {
		_ = s.proc.cmd.Process.Signal(syscall.SIGTERM)
		s.proc.end(grace)
	}
}
