package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/natslock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testproc"
)

// natsEnv has this program be a NATS server.
const natsEnv = "WLLOCK_TEST_NATS"

// natsServer says which.
type natsServer struct {
	Port, Peer int
	Peers      []int // ports; nil: it is alone
	Dir        string
}

// run serves until the process is killed.
func (n natsServer) run() error {
	o := &server.Options{
		ServerName: fmt.Sprint("n", n.Port), Host: "127.0.0.1", Port: n.Port, JetStream: true, StoreDir: n.Dir, SyncAlways: true, NoSigs: true, NoLog: true,
	}
	if n.Peers != nil {
		o.Cluster = server.ClusterOpts{Name: "chaos", Host: "127.0.0.1", Port: n.Peer, NoAdvertise: true}
		for _, port := range n.Peers {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: testproc.Loopback(port)})
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// natsOf is so many servers, which keep each lock on all of them.
func natsOf(n int) func(t *testing.T) *service {
	return func(t *testing.T) *service {
		program, err := os.Executable() // see TestMain
		require.NoError(t, err)
		var ports, peers []int
		for range n {
			ports, peers = append(ports, testproc.FreePort(t, 20000, 32000)), append(peers, testproc.FreePort(t, 20000, 32000))
		}
		s := &service{minority: n / 2}
		for i := range n {
			one := testproc.New(t, testproc.Spec{
				Name: "nats", Patience: time.Minute,
				Ready: func(s *testproc.Server) bool { return bytes.HasPrefix(testproc.Ask(s.Addr, nil), []byte("INFO")) },
				Command: func(s *testproc.Server) testproc.Command {
					is := natsServer{Port: s.Port, Peer: peers[i], Dir: s.Dir}
					if n > 1 {
						is.Peers = peers
					}
					text, err := json.Marshal(is)
					require.NoError(t, err)
					return testproc.Command{Path: program, Env: []string{natsEnv + "=" + string(text)}}
				},
			}, ports[i])
			require.NoError(t, one.Run())
			s.servers = append(s.servers, one)
		}
		ways := map[string]string{}
		for _, one := range s.servers {
			require.True(t, one.AwaitReady())
			ways[one.Addr] = one.Addr
		}
		s.url = func(_ int, ways map[string]string) string {
			return "nats://" + s.hosts(ways) + fmt.Sprint("?replicas=", n)
		}
		first, err := natslock.Open(s.url(0, ways))
		require.NoError(t, err)
		defer func() { require.NoError(t, first.Close()) }()
		redistest.Eventually(t, time.Minute, "a leader", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			return first.Ping(ctx) == nil
		})
		return s
	}
}
