package redistest

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/testproc"
)

const (
	// Ports lie below the range that Linux uses for outgoing connections, so that a server can restart on its port.
	firstPort, lastPort = 20000, 32000
	// readyWait bounds the wait for what servers agree on: long, because the machine may be busy.
	readyWait = 20 * time.Second
	program   = "redis-server"
)

// Server is one redis-server process.
type Server struct {
	*testproc.Server
	Socket string // path of its unix socket

	t    testing.TB
	args []string
}

// Start starts a server with further arguments, such as "--maxmemory", "4mb", and waits until it answers. It stores nothing
// on disk by default.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, nil, append(inMemory(), args...))
}

func inMemory() []string { return []string{"--save", "", "--appendonly", "no"} }

// start starts a server that reads its settings from args alone. env is added to this process's environment.
func start(t testing.TB, env, args []string) *Server {
	t.Helper()
	s := launch(t, env, func(p *testproc.Server) []string {
		return append([]string{
			"--port", strconv.Itoa(p.Port), "--bind", "127.0.0.1", "--unixsocket", socketOf(p), "--enable-debug-command", "local",
		}, args...)
	}, nil)
	s.args, s.Socket = args, socketOf(s.Server)
	return s
}

func socketOf(p *testproc.Server) string { return filepath.Join(p.Dir, "s") }

// launch starts a server by the arguments for its port and folder; prepare fills the folder.
func launch(t testing.TB, env []string, args func(p *testproc.Server) []string, prepare func(dir string) error) *Server {
	t.Helper()
	_, err := testproc.Find(program)
	testproc.Need(t, err)
	return &Server{t: t, Server: testproc.Launch(t, testproc.Spec{
		Name: "redistest", FirstPort: firstPort, LastPort: lastPort, Prepare: prepare,
		Command: func(p *testproc.Server) testproc.Command {
			return testproc.Command{Path: program, Args: args(p), Env: env}
		},
		Ready: answers,
	})}
}

// answers reports whether a Redis server answers PING, even with an error such as NOAUTH.
func answers(p *testproc.Server) bool {
	answer := testproc.Ask(p.Addr, []byte("PING\r\n"))
	return len(answer) > 0 && !bytes.HasPrefix(answer, []byte("-LOADING"))
}

// Client returns a plain client of the server, closed with the test. It does not repeat commands.
func (s *Server) Client(change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.Addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 4}
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Do runs one command on a new connection and returns the answer. Without one the test fails.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, PoolSize: 1, DialTimeout: readyWait, ReadTimeout: readyWait, WriteTimeout: readyWait})
	defer func() { _ = c.Close() }()
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}
