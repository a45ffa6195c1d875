package testproc

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// startTries is how many ports are tried if one has been taken meanwhile.
	startTries = 20
	// defaultPatience bounds the wait for a server's first answer: long, because the machine may be busy.
	defaultPatience = 20 * time.Second
	// probeEvery is how often a starting server is asked.
	probeEvery = 5 * time.Millisecond
)

// Spec says how a kind of server is started.
type Spec struct {
	Name                string // begins the name of its folder
	FirstPort, LastPort int    // its ports
	User                string // owns its folder: see Command
	// Prepare fills its folder, once, if not nil.
	Prepare func(dir string) error
	// Configure writes what depends on its Port, before each start, if not nil.
	Configure func(s *Server) error
	// Command returns what starts the server on its Port, with its files in its Dir, where it runs.
	Command func(s *Server) Command
	// Ready reports whether it serves. It is called until it does.
	Ready func(s *Server) bool
	// Patience bounds the wait for Ready (default 20 s).
	Patience time.Duration
}

// Server is one process, which can be restarted on its port with its data.
type Server struct {
	Addr string // host:port
	Port int
	Dir  string // where it runs, with its output in out.log

	t    TB
	spec Spec

	mu   sync.Mutex
	proc *process // guarded by mu; nil before the first start
}

// Launch starts a server on a free port and waits until it is ready. It is killed with the test, and its folder removed.
func Launch(t TB, spec Spec) *Server {
	t.Helper()
	s := New(t, spec, 0)
	for range startTries {
		s.move(FreePort(t, spec.FirstPort, spec.LastPort))
		if s.launch() {
			return s
		}
	}
	t.Fatalf("no %s could be started:\n%s", spec.Name, s.Log())
	return nil
}

// New makes a server that Run or Restart starts on that port.
func New(t TB, spec Spec, port int) *Server {
	t.Helper()
	s := &Server{t: t, spec: spec, Dir: TempDir(t, spec.Name)}
	s.move(port)
	t.Cleanup(s.cleanup) // before the folder is removed
	err := Own(s.Dir, spec.User)
	if err == nil && spec.Prepare != nil {
		err = spec.Prepare(s.Dir)
	}
	if err != nil {
		t.Fatalf("prepare %s: %v", spec.Name, err)
	}
	return s
}

func (s *Server) move(port int) { s.Port, s.Addr = port, Loopback(port) }

func (s *Server) launch() bool {
	s.t.Helper()
	if err := s.Run(); err != nil {
		s.t.Fatalf("%v", err)
	}
	return s.AwaitReady()
}

// Run starts the process and does not wait for it.
func (s *Server) Run() error {
	if s.spec.Configure != nil {
		if err := s.spec.Configure(s); err != nil {
			return err
		}
	}
	c := s.spec.Command(s)
	c.Dir = s.Dir
	p, err := start(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
	return nil
}

// AwaitReady waits until the server is ready. If it returns false, the process has ended or was killed: it did not get
// ready, or the port belongs to another process.
func (s *Server) AwaitReady() bool {
	p, patience := s.current(), s.spec.Patience
	if p == nil {
		return false
	}
	if patience == 0 {
		patience = defaultPatience
	}
	for until := time.Now().Add(patience); time.Now().Before(until) && !p.exited(); time.Sleep(probeEvery) {
		if s.spec.Ready(s) {
			return !p.exited()
		}
	}
	p.kill()
	return false
}

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() {
	if p := s.current(); p != nil {
		p.kill()
	}
}

// Restart kills the server if it runs, and starts it again on the same port with its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	for range startTries {
		if s.launch() {
			return
		}
	}
	s.t.Fatalf("the %s on %s did not come back:\n%s", s.spec.Name, s.Addr, s.Log())
}

// Pause stops the process (SIGSTOP): connections stay, nothing answers. When it returns, nothing runs.
func (s *Server) Pause() {
	if p := s.current(); p != nil {
		p.pause()
	}
}

// Resume continues a paused process (SIGCONT).
func (s *Server) Resume() {
	if p := s.current(); p != nil {
		p.resume()
	}
}

// Pid returns the number of the process.
func (s *Server) Pid() int { return s.current().cmd.Process.Pid }

// Log returns what the server has said.
func (s *Server) Log() string {
	text, _ := os.ReadFile(filepath.Join(s.Dir, logName))
	return string(text)
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) cleanup() {
	s.Kill()
	if t, ok := s.t.(interface {
		Failed() bool
		Logf(format string, args ...any)
	}); ok && t.Failed() {
		t.Logf("log of the %s on %s:\n%s", s.spec.Name, s.Addr, s.Log())
	}
}

// Ask sends a request to the address and returns the first bytes of the answer, nil without one. An empty request only waits
// for what the server says first.
func Ask(addr string, request []byte) []byte {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = conn.Write(request); err != nil {
		return nil
	}
	answer := make([]byte, 4096)
	n, _ := conn.Read(answer)
	return bytes.Clone(answer[:n])
}
