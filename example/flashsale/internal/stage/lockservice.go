package stage

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

// lockService is the lock service of the page: a Redis of its own, which may be killed, or the user's -backend, which may not.
type lockService struct {
	name  string
	url   string
	proc  *sale.Process // nil: it is the user's, or is down
	path  string        // of the program; "": it is the user's
	dir   string
	up    bool
	since time.Time // of the last change
}

func (s *lockService) ours() bool { return s.path != "" }

// errNoRedis says what to do where there is no Redis.
var errNoRedis = errors.New("no redis-server in PATH: install it (apt install redis-server, brew install redis) and reload, " +
	"or start with -backend redis://host:port")

const socketName = "redis.sock"

// findService chooses the lock service. It is reached over a socket in dir, which nobody else can open, on no port.
func findService(backend, dir string) (lockService, error) {
	if backend != sale.MemoryURL {
		return lockService{name: "the lock service of -backend", url: backend, up: true}, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return lockService{name: "Redis", url: "unix://" + filepath.Join(dir, socketName), path: path, dir: dir}, nil
		}
	}
	return lockService{}, errNoRedis
}

// start starts Redis with an append-only file: what it has acknowledged is in the kernel's hands, so a kill forgets nothing.
func (s *lockService) start() (*sale.Process, error) {
	return sale.StartProcess(s.path, "--port", "0", "--unixsocket", filepath.Join(s.dir, socketName), "--unixsocketperm", "700",
		"--dir", s.dir, "--save", "", "--appendonly", "yes", "--logfile", "redis.log", "--daemonize", "no")
}

// fallen notes that it is down.
func (s *lockService) fallen() { s.proc, s.up, s.since = nil, false, time.Now() }

// serviceStart is long, because the machine may be busy.
const serviceStart = 20 * time.Second

// answers waits until the lock service does.
func answers(ctx context.Context, s sale.Settings, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, serviceStart)
	defer cancel()
	for {
		err := s.PrepareBackend(ctx)
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
