package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/testproc"
)

// MasterName is what the sentinels call the primary.
const MasterName = "main"

// Sentinel is a primary, one replica, and three sentinels that watch them.
type Sentinel struct {
	Primary, Replica *Server
	Sentinels        []*Server
	t                testing.TB
}

// StartSentinel starts the servers and waits until the sentinels know each other and the replica.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t, Primary: Start(t)}
	s.Replica = Start(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", s.Primary.Port))
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, s.Primary.Port))
	}
	for _, n := range s.Sentinels {
		Eventually(t, readyWait, "the sentinels agree", func() bool {
			info, _ := n.Do("INFO", "sentinel").(string)
			return strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=1") &&
				strings.Contains(info, "sentinels=3")
		})
	}
	return s
}

// startSentinel starts a sentinel. Sentinels rewrite their configuration, so it is a file.
func startSentinel(t testing.TB, primary int) *Server {
	t.Helper()
	return sentinel(t, fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 5000\n", MasterName, primary))
}

// StartLoneSentinel starts a sentinel that knows no primary yet.
func StartLoneSentinel(t testing.TB) *Server {
	t.Helper()
	return sentinel(t, "")
}

func sentinel(t testing.TB, text string) *Server {
	t.Helper()
	const conf = "sentinel.conf"
	return launch(t, nil, func(p *testproc.Server) []string {
		return []string{conf, "--sentinel", "--port", strconv.Itoa(p.Port), "--bind", "127.0.0.1"}
	}, func(dir string) error { return os.WriteFile(filepath.Join(dir, conf), []byte(text), 0o600) })
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, n := range s.Sentinels {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Client returns a client that follows the primary, closed with the test.
func (s *Sentinel) Client() *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: s.Addrs()})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Failover makes the replica the primary and waits until the sentinels say so.
func (s *Sentinel) Failover() {
	s.t.Helper()
	before := s.PrimaryAddr()
	s.Sentinels[0].Do("SENTINEL", "FAILOVER", MasterName)
	Eventually(s.t, readyWait, "the failover", func() bool { return s.PrimaryAddr() != before })
}

// PrimaryAddr returns the primary according to the first sentinel.
func (s *Sentinel) PrimaryAddr() string {
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinels[0].Addr})
	defer func() { _ = c.Close() }()
	a, err := c.GetMasterAddrByName(context.Background(), MasterName).Result()
	if err != nil || len(a) != 2 {
		return ""
	}
	return a[0] + ":" + a[1]
}
