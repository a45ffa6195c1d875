package zktest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

const (
	// Ports lie below the range that Linux uses for outgoing connections, so that a server can restart on its port, and
	// apart from those of other servers: an ensemble's are chosen some time before they are used.
	firstPort, lastPort = 12000, 20000
	// readyWait bounds the wait for a server's first answer: long, because a JVM starts slowly on a busy machine.
	readyWait = 60 * time.Second
	// Tick is the servers' tickTime, the unit of their time: sessions of 2 to 600 ticks are granted.
	Tick = 100 * time.Millisecond
	// longestSession is the longest session time-out a server grants.
	longestSession = 600 * Tick
	config         = "zoo.cfg"
)

// TB is the part of a testing.TB that this package needs.
type TB = testproc.TB

// Server is one ZooKeeper process.
type Server struct {
	*testproc.Server
	links []*testproc.Proxy // from it to its leader; of an ensemble
}

// Missing returns an error that says what is not installed, or nil: servers can be started.
func Missing() error {
	if _, err := testproc.Find("java"); err != nil {
		return errors.New("java is not in PATH")
	}
	if classpath() == "" {
		return errors.New("ZooKeeper is neither in /usr/share/java (Debian: apt-get install libzookeeper-java) nor below $ZOOKEEPER_HOME")
	}
	return nil
}

// Required reports whether a missing server is a failure.
func Required() bool { return testproc.Required() }

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
// killed with the test. Properties are those of the JVM, "-Dname=value", and beat ours.
func Start(t TB, properties ...string) *Server {
	t.Helper()
	testproc.Need(t, Missing())
	one := spec(0, func(port int) string {
		return fmt.Sprintf("clientPort=%d\nclientPortAddress=127.0.0.1\n", port)
	})
	one.Command = func(*testproc.Server) testproc.Command { return command(properties) }
	return &Server{Server: testproc.Launch(t, one)}
}

// StartEnsemble starts three servers that elect a leader. If they are to be cut off from each other, they reach their leader
// through proxies. Then a server that is down seems to accept connections, and an election without it takes long.
func StartEnsemble(t TB, cuttable bool) []*Server {
	t.Helper()
	testproc.Need(t, Missing())
	var client, peer, election [3]int
	for i := range client {
		client[i], peer[i], election[i] = freePort(t), freePort(t), freePort(t)
	}
	servers := make([]*Server, len(client))
	var all sync.WaitGroup
	for i, port := range client {
		var members strings.Builder
		var links []*testproc.Proxy
		for j := range client {
			to := strconv.Itoa(peer[j])
			if cuttable && i != j {
				links = append(links, testproc.NewProxy(t, testproc.Loopback(peer[j])))
				_, to, _ = net.SplitHostPort(links[len(links)-1].Addr)
			}
			fmt.Fprintf(&members, "server.%d=127.0.0.1:%s:%d;127.0.0.1:%d\n", j+1, to, election[j], client[j])
		}
		server := testproc.New(t, spec(i+1, func(int) string { return members.String() }), port)
		servers[i] = &Server{server, links}
		all.Go(func() { _ = server.Run() }) // AwaitReady finds out
	}
	all.Wait()
	for _, s := range servers {
		if !s.AwaitReady() {
			t.Fatalf("a server of the ensemble did not start: %s", s.Log())
		}
	}
	return servers
}

func freePort(t TB) int {
	t.Helper()
	return testproc.FreePort(t, firstPort, lastPort)
}

// spec says how a server is started; id is its number in an ensemble, and members returns what its configuration says of
// that, or of its port.
func spec(id int, members func(port int) string) testproc.Spec {
	return testproc.Spec{
		Name: "zktest", FirstPort: firstPort, LastPort: lastPort, Patience: readyWait,
		Prepare: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(id)), 0o600)
		},
		Configure: func(p *testproc.Server) error {
			text := fmt.Sprintf("tickTime=%d\nmaxSessionTimeout=%d\ninitLimit=100\nsyncLimit=20\ndataDir=%s\n"+
				"admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n%s",
				Tick.Milliseconds(), longestSession.Milliseconds(), p.Dir, members(p.Port))
			return os.WriteFile(filepath.Join(p.Dir, config), []byte(text), 0o600)
		},
		Command: func(*testproc.Server) testproc.Command { return command(nil) },
		Ready:   func(p *testproc.Server) bool { return modeOf(p) != "" },
	}
}

// command starts a server: a small heap and the quick compiler alone, for one that lives for seconds; no fsync.
func command(properties []string) testproc.Command {
	args := append([]string{
		"-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dzookeeper.forceSync=no",
		"-Dznode.container.checkIntervalMs=500",
	}, properties...)
	return testproc.Command{Path: "java", Args: append(args, "-cp", classpath(), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)}
}

// Mode returns "standalone", "leader" or "follower", or "" while the server does not serve.
func (s *Server) Mode() string { return modeOf(s.Server) }

func modeOf(p *testproc.Server) string {
	for line := range strings.Lines(ask(p.Addr, "srvr")) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// ask sends a four-letter word; the answer ends with the connection.
func ask(addr, word string) string {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = conn.Write([]byte(word)); err != nil {
		return ""
	}
	text, _ := io.ReadAll(conn)
	return string(text)
}

// CutOffFromEnsemble, while on, keeps a follower from its leader. Clients still reach it, and it answers them until it
// notices.
func (s *Server) CutOffFromEnsemble(on bool) {
	for _, p := range s.links {
		p.Stall(on)
	}
}

var shared testproc.Shared[*Server]

// Main wraps the tests of a package that use Shared. It stops the server when all tests have ended.
func Main(m interface{ Run() int }) interface{ Run() int } { return shared.Main(m) }

// Shared returns the server that all tests of the package use. It is not to be killed, paused or configured.
func Shared(t TB) *Server {
	t.Helper()
	testproc.Need(t, Missing())
	return shared.Get(t, "zookeeper", func(t TB) *Server { return Start(t) })
}
