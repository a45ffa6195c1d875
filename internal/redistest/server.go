package redistest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Ports lie below the range that Linux uses for outgoing connections, so that a server can restart on its port.
	firstPort, lastPort = 20000, 32000
	// startTries is how many ports are tried if one has been taken meanwhile.
	startTries = 20
	// readyWait bounds the wait for a server's first answer: long, because the machine may be busy.
	readyWait = 20 * time.Second
)

// Server is one redis-server process.
type Server struct {
	Addr   string // host:port
	Port   int
	Dir    string // working folder, with the log in redis.log
	Socket string // path of its unix socket

	t         testing.TB
	args, env []string

	mu   sync.Mutex
	proc *process // guarded by mu; replaced by Restart
}

// Start starts a server with further arguments, such as "--maxmemory", "4mb", and waits until it answers. It stores nothing
// on disk by default.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, 0, nil, append(inMemory(), args...))
}

func inMemory() []string { return []string{"--save", "", "--appendonly", "no"} }

// start tries ports until a server answers on one; port 0 picks them. env is added to this process's environment.
func start(t testing.TB, port int, env, args []string) *Server {
	t.Helper()
	need(t)
	dir, err := os.MkdirTemp("", "redistest") // short, because the path of a unix socket is limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{t: t, Dir: dir, Socket: filepath.Join(dir, "s"), args: args, env: env}
	fixed := port != 0
	for range startTries {
		if !fixed {
			port = freePort(t)
		}
		s.Port, s.Addr = port, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if s.launch() {
			t.Cleanup(s.cleanup)
			return s
		}
	}
	t.Fatalf("no redis-server could be started; the last one said:\n%s", s.Log())
	return nil
}

// need skips or fails the test when there is no redis-server here.
func need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	if os.Getenv("WLLOCK_REQUIRE_SERVERS") == "1" {
		t.Fatal("redis-server is not in PATH, and WLLOCK_REQUIRE_SERVERS=1")
	}
	t.Skip("redis-server is not in PATH")
}

// freePort returns a port that was free a moment ago. It may be taken meanwhile, so the caller retries.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = l.Close()
		return port
	}
	t.Fatal("no free port")
	return 0
}

// launch starts the process and reports whether it answers.
func (s *Server) launch() bool {
	args := append([]string{
		"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--dir", s.Dir, "--logfile", "redis.log",
		"--unixsocket", s.Socket, "--enable-debug-command", "local",
	}, s.args...)
	p, err := run(args, s.env...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	return s.ready(p)
}

func (s *Server) ready(p *process) bool {
	until := time.Now().Add(readyWait)
	for time.Now().Before(until) && !p.exited() {
		if answers(s.Addr) {
			return !p.exited() // otherwise the port belongs to another process
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.kill()
	return false
}

// answers reports whether a Redis server answers PING there, even with an error such as NOAUTH.
func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	return err == nil && !bytes.HasPrefix(buf[:n], []byte("-LOADING"))
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

// Do runs one command on a new connection and returns the answer; without one the test fails.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, PoolSize: 1})
	defer func() { _ = c.Close() }()
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() { s.current().kill() }

// Restart starts the server again on the same port and in the same folder, after Kill.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	for range startTries {
		if s.launch() {
			return
		}
	}
	s.t.Fatalf("the server on %s did not come back:\n%s", s.Addr, s.Log())
}

// Pause stops the process (SIGSTOP): connections stay, nothing answers.
func (s *Server) Pause() { _ = s.current().cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused process (SIGCONT).
func (s *Server) Resume() { _ = s.current().cmd.Process.Signal(syscall.SIGCONT) }

// Log returns what the server has logged.
func (s *Server) Log() string {
	b, _ := os.ReadFile(filepath.Join(s.Dir, "redis.log"))
	return string(b) + s.current().output.String()
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) cleanup() {
	s.Resume()
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("log of the server on %s:\n%s", s.Addr, s.Log())
	}
}

// process is a running redis-server.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer // read after done
	done   chan struct{}
}

// run starts redis-server on a thread that lives as long as the process: Linux sends the parent-death signal when the thread
// that started the child ends, not when the whole parent does.
func run(args []string, env ...string) (*process, error) {
	p := &process{cmd: exec.Command("redis-server", args...), done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	return p, nil
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
