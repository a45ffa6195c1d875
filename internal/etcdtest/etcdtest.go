package etcdtest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

// TB is the part of a testing.TB that this package needs.
type TB = testproc.TB

const (
	// Ports lie below the range that Linux uses for outgoing connections.
	firstPort, lastPort = 20000, 32000
	// patience is longer than a start on a busy machine takes.
	patience = 60 * time.Second
	// members is the size of a cluster.
	members = 3
	// startTries is how many clusters are tried if a port has been taken meanwhile.
	startTries = 5
)

// Server is one etcd process.
type Server = testproc.Server

// Missing returns an error that says what is not installed, or nil: servers can be started.
func Missing() error {
	_, err := find()
	return err
}

func find() (string, error) { return testproc.Find("etcd", "/usr/local/bin", "/opt/homebrew/bin") }

// Start starts a single server with further arguments, such as "--quota-backend-bytes=10000000". Leases of a second are
// granted.
func Start(t TB, args ...string) *Server {
	t.Helper()
	program, err := find()
	testproc.Need(t, err)
	peer := testproc.FreePort(t, firstPort, lastPort)
	return testproc.Launch(t, testproc.Spec{
		Name: "etcd", FirstPort: firstPort, LastPort: lastPort, Patience: patience, Ready: isReady,
		Command: func(s *Server) testproc.Command {
			return testproc.Command{Path: program, Args: append(arguments(s, "single", peer, "single="+peerURL(peer),
				"--heartbeat-interval=50", "--election-timeout=500"), args...)}
		},
	})
}

// StartLearner starts a server that learns from a single one, and has no vote. add makes the cluster know a learner at a peer's URL, and
// returns the peer's URL of the single server, by a client, which this package links none of.
func StartLearner(t TB, add func(peer string) (single string, err error)) *Server {
	t.Helper()
	program, err := find()
	testproc.Need(t, err)
	peer := testproc.FreePort(t, firstPort, lastPort)
	single, err := add(peerURL(peer))
	if err != nil {
		t.Fatalf("add a learner: %v", err)
	}
	return testproc.Launch(t, testproc.Spec{
		Name: "etcd-learner", FirstPort: firstPort, LastPort: lastPort, Patience: patience,
		Ready: func(s *Server) bool { // a learner has no health
			return bytes.Contains(testproc.Ask(s.Addr, []byte("GET /version HTTP/1.0\r\n\r\n")), []byte("etcdserver"))
		},
		Command: func(s *Server) testproc.Command {
			return testproc.Command{Path: program, Args: arguments(s, "learner", peer, "single="+single+",learner="+peerURL(peer),
				"--initial-cluster-state=existing", "--heartbeat-interval=50", "--election-timeout=500")}
		},
	})
}

// StartProxy starts etcd's own proxy of gRPC in front of a server.
func StartProxy(t TB, to *Server) *Server {
	t.Helper()
	program, err := find()
	testproc.Need(t, err)
	return testproc.Launch(t, testproc.Spec{
		Name: "etcd-grpc-proxy", FirstPort: firstPort, LastPort: lastPort, Patience: patience, Ready: isReady,
		Command: func(s *Server) testproc.Command {
			return testproc.Command{Path: program, Args: []string{"grpc-proxy", "start", "--endpoints=" + to.Addr, "--listen-addr=" + s.Addr}}
		},
	})
}

// StartCluster starts three servers, which have elected a leader, with the timing of etcd's defaults: leases of 2 s are granted.
func StartCluster(t TB, args ...string) []*Server {
	t.Helper()
	program, err := find()
	testproc.Need(t, err)
	for range startTries {
		if servers := startCluster(t, program, args); servers != nil {
			return servers
		}
	}
	t.Fatalf("no etcd cluster could be started")
	return nil
}

func startCluster(t TB, program string, args []string) []*Server {
	t.Helper()
	var peers [members]int
	var all []string
	for i := range peers {
		peers[i] = testproc.FreePort(t, firstPort, lastPort)
		all = append(all, fmt.Sprintf("m%d=%s", i, peerURL(peers[i])))
	}
	servers := make([]*Server, members)
	for i := range servers {
		servers[i] = testproc.New(t, testproc.Spec{
			Name: "etcd", Patience: patience, Ready: isReady,
			Command: func(s *Server) testproc.Command {
				return testproc.Command{Path: program,
					Args: append(arguments(s, fmt.Sprint("m", i), peers[i], strings.Join(all, ",")), args...)}
			},
		}, testproc.FreePort(t, firstPort, lastPort))
		if err := servers[i].Run(); err != nil {
			t.Fatalf("%v", err)
		}
	}
	ready := true
	for _, s := range servers {
		ready = ready && s.AwaitReady()
	}
	if !ready {
		for _, s := range servers {
			s.Kill()
		}
		return nil
	}
	return servers
}

func arguments(s *Server, name string, peer int, all string, more ...string) []string {
	return append([]string{
		"--name=" + name, "--data-dir=" + filepath.Join(s.Dir, "data"), "--log-level=error", "--logger=zap",
		"--listen-client-urls=http://" + s.Addr, "--advertise-client-urls=http://" + s.Addr,
		"--listen-peer-urls=" + peerURL(peer), "--initial-advertise-peer-urls=" + peerURL(peer), "--initial-cluster=" + all,
	}, more...)
}

func peerURL(port int) string { return "http://" + testproc.Loopback(port) }

// isReady reports whether the server has a leader and no alarm.
func isReady(s *Server) bool {
	return bytes.Contains(testproc.Ask(s.Addr, []byte("GET /health HTTP/1.0\r\n\r\n")), []byte(`"health":"true"`))
}

var shared testproc.Shared[*Server]

// Main wraps the tests of a package that use Shared. It stops the server when all tests have ended.
func Main(m interface{ Run() int }) interface{ Run() int } { return shared.Main(m) }

// Shared returns the server that all tests of the package use. It is not to be killed, paused or configured. TestMain begins with
//
//	goleak.VerifyTestMain(etcdtest.Main(m))
func Shared(t TB) *Server {
	t.Helper()
	testproc.Need(t, Missing())
	return shared.Get(t, "etcd", func(t TB) *Server { return Start(t) })
}
