package zktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// Ports lie below the range that Linux uses for outgoing connections, so that a server can restart on its port, and
	// apart from those of the Redis servers.
	firstPort, lastPort = 12000, 20000
	// startTries is how many ports are tried if one has been taken meanwhile.
	startTries = 10
	// readyWait bounds the wait for a server's first answer: long, because a JVM starts slowly on a busy machine.
	readyWait = 60 * time.Second
	// Tick is the servers' tickTime, the unit of their time: sessions of 2 to 600 ticks are granted.
	Tick = 100 * time.Millisecond
	// longestSession is the longest session time-out a server grants.
	longestSession = 600 * Tick
)

// TB is the part of a testing.TB that this package needs; a TestMain has a small one of its own.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Server is one ZooKeeper process.
type Server struct {
	Addr string // host:port for clients

	dir, config string
	links       []*Proxy // from it to its leader; of an ensemble

	mu   sync.Mutex
	proc *process // guarded by mu; replaced by Restart
}

// Missing returns an error that says what is not installed; nil: servers can be started.
func Missing() error {
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("java is not in PATH")
	}
	if classpath() == "" {
		return errors.New("ZooKeeper is neither in /usr/share/java (Debian: apt-get install libzookeeper-java) nor below $ZOOKEEPER_HOME")
	}
	return nil
}

// Required reports whether a missing server is a failure.
func Required() bool { return os.Getenv("WLLOCK_REQUIRE_SERVERS") == "1" }

func need(t TB) {
	t.Helper()
	if err := Missing(); err != nil && Required() {
		t.Fatalf("%v, and WLLOCK_REQUIRE_SERVERS=1", err)
	} else if err != nil {
		t.Skipf("%v", err)
	}
}

// classpath is that of Debian's packages, whose jar names the others, or of a folder unpacked from a release.
func classpath() string {
	const debian = "/usr/share/java/zookeeper.jar"
	if home := os.Getenv("ZOOKEEPER_HOME"); home != "" {
		return filepath.Join(home, "lib", "*")
	}
	if _, err := os.Stat(debian); err != nil {
		return ""
	}
	return debian
}

// Start starts a server without an ensemble and waits until it answers. It keeps its data when it is restarted, and is
// killed with the test.
func Start(t TB) *Server {
	t.Helper()
	need(t)
	for range startTries {
		port := freePort(t)
		s := newServer(t, port, fmt.Sprintf("clientPort=%d\nclientPortAddress=127.0.0.1\n", port), 0)
		if s.launch(t) {
			return s
		}
	}
	t.Fatalf("no ZooKeeper server could be started")
	return nil
}

// StartEnsemble starts three servers that elect a leader. If they are to be cut off from each other, they reach their leader
// through proxies; then a server that is down seems to accept connections, and an election without it takes long.
func StartEnsemble(t TB, cuttable bool) []*Server {
	t.Helper()
	need(t)
	var client, peer, election [3]int
	for i := range client {
		client[i], peer[i], election[i] = freePort(t), freePort(t), freePort(t)
	}
	servers := make([]*Server, len(client))
	var all sync.WaitGroup
	for i, port := range client {
		var members strings.Builder
		var links []*Proxy
		for j := range client {
			to := strconv.Itoa(peer[j])
			if cuttable && i != j {
				links = append(links, NewProxy(t, net.JoinHostPort("127.0.0.1", to)))
				_, to, _ = net.SplitHostPort(links[len(links)-1].Addr)
			}
			fmt.Fprintf(&members, "server.%d=127.0.0.1:%s:%d;127.0.0.1:%d\n", j+1, to, election[j], client[j])
		}
		servers[i] = newServer(t, port, members.String(), i+1)
		servers[i].links = links
		all.Go(func() { _ = servers[i].run() }) // ready finds out
	}
	all.Wait()
	for _, s := range servers {
		if !s.ready() {
			t.Fatalf("a server of the ensemble did not start: %s", s.log())
		}
	}
	return servers
}

// newServer writes the folder of a server; id is its number in an ensemble.
func newServer(t TB, port int, members string, id int) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "zktest")
	if err != nil {
		t.Fatalf("%v", err)
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, config: filepath.Join(dir, "zoo.cfg")}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	text := fmt.Sprintf("tickTime=%d\nmaxSessionTimeout=%d\ninitLimit=100\nsyncLimit=20\ndataDir=%s\n"+
		"admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n%s",
		Tick.Milliseconds(), longestSession.Milliseconds(), dir, members)
	err = errors.Join(os.WriteFile(s.config, []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(id)), 0o600))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// freePort returns a port that was free a moment ago. It may be taken meanwhile, so the caller retries.
func freePort(t TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no free port")
	return 0
}

func (s *Server) launch(t TB) bool {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatalf("%v", err)
	}
	return s.ready()
}

// run starts the process: a small heap and the quick compiler alone, for a server that lives for seconds; no fsync.
func (s *Server) run() error {
	p, err := start(s.dir, "java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=500", "-cp", classpath(),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", s.config)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
	return err
}

func (s *Server) ready() bool {
	p := s.current()
	if p == nil {
		return false
	}
	for until := time.Now().Add(readyWait); time.Now().Before(until) && !p.exited(); time.Sleep(20 * time.Millisecond) {
		if s.Mode() != "" {
			return !p.exited() // otherwise the port belongs to another process
		}
	}
	p.kill()
	return false
}

// Mode returns "standalone", "leader" or "follower", or "" while the server does not serve.
func (s *Server) Mode() string {
	for line := range strings.Lines(s.ask("srvr")) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// ask sends a four-letter word.
func (s *Server) ask(word string) string {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = conn.Write([]byte(word)); err != nil {
		return ""
	}
	var text strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			return text.String()
		}
	}
}

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() {
	if p := s.current(); p != nil {
		p.kill()
	}
}

// Restart starts the server again, on the same port and with its data, after a Kill.
func (s *Server) Restart(t TB) {
	t.Helper()
	s.Kill()
	for range startTries {
		if s.launch(t) {
			return
		}
	}
	t.Fatalf("the server on %s did not come back: %s", s.Addr, s.log())
}

// Pid returns the number of the process.
func (s *Server) Pid() int { return s.current().cmd.Process.Pid }

// Pause stops the process (SIGSTOP): connections stay, nothing answers.
func (s *Server) Pause() { _ = s.current().cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (s *Server) Resume() { _ = s.current().cmd.Process.Signal(syscall.SIGCONT) }

// CutOffFromEnsemble, while on, keeps a follower from its leader. Clients still reach it, and it answers them until it
// notices.
func (s *Server) CutOffFromEnsemble(on bool) {
	for _, p := range s.links {
		p.Stall(on)
	}
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "out.log"))
	return string(text)
}

// process is a running server.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts a process. Its thread stays locked as long as the process lives: Linux would kill the process when the
// thread that started it ends.
func start(dir, name string, args ...string) (*process, error) {
	out, err := os.Create(filepath.Join(dir, "out.log"))
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = dir, out, out, dieWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.ended)
		defer func() { _ = out.Close() }()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return p, <-started
}

func (p *process) exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
	}
	<-p.ended
}

// Shared runs all tests of a package with one server, from TestMain; nil if there is none here.
func Shared(run func(*Server) int) (code int) {
	if Missing() != nil {
		return run(nil)
	}
	t := new(mainTB)
	defer t.cleanUp()
	return run(Start(t))
}

// mainTB is the TB of a TestMain.
type mainTB struct{ cleanups []func() }

func (t *mainTB) Helper()          {}
func (t *mainTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *mainTB) Fatalf(format string, args ...any) {
	t.cleanUp()
	panic(fmt.Sprintf(format, args...))
}

func (t *mainTB) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

func (t *mainTB) cleanUp() {
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		t.cleanups[last]()
		t.cleanups = t.cleanups[:last]
	}
}
