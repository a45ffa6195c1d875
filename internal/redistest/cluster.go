package redistest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/testproc"
)

const slots = 16384

// Cluster is three primaries that share the hash slots.
type Cluster struct {
	Nodes []*Server
	t     testing.TB
}

// StartCluster starts the nodes with further arguments, joins them and waits until all of them serve.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range 3 {
		c.Nodes = append(c.Nodes, startNode(t, args...))
	}
	for i, n := range c.Nodes {
		first, last := i*slots/3, (i+1)*slots/3-1
		n.Do("CLUSTER", "ADDSLOTSRANGE", first, last)
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for _, n := range c.Nodes[1:] {
		c.Nodes[0].Do("CLUSTER", "MEET", "127.0.0.1", n.Port, n.busPort())
	}
	for _, n := range c.Nodes {
		Eventually(t, readyWait, "the cluster is ok", func() bool {
			info, _ := n.Do("CLUSTER", "INFO").(string)
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return c
}

// AddReplica starts a replica of a node, and waits until it follows.
func (c *Cluster) AddReplica(of *Server) *Server {
	c.t.Helper()
	n := startNode(c.t)
	n.Do("CLUSTER", "MEET", "127.0.0.1", of.Port, of.busPort())
	Eventually(c.t, readyWait, "the node is known", func() bool {
		nodes, _ := n.Do("CLUSTER", "NODES").(string)
		return strings.Contains(nodes, of.ID())
	})
	n.Do("CLUSTER", "REPLICATE", of.ID())
	of.followedBy(1)
	return n
}

func startNode(t testing.TB, args ...string) *Server {
	t.Helper()
	return Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1",
		"--cluster-port", strconv.Itoa(testproc.FreePort(t, firstPort, lastPort))}, args...)...)
}

// StartLoneNode starts a cluster of one node, and waits until it serves.
func StartLoneNode(t testing.TB) *Server {
	t.Helper()
	n := startNode(t)
	n.Do("CLUSTER", "ADDSLOTSRANGE", 0, slots-1)
	Eventually(t, readyWait, "the node serves", func() bool {
		info, _ := n.Do("CLUSTER", "INFO").(string)
		return strings.Contains(info, "cluster_state:ok")
	})
	return n
}

func (s *Server) busPort() int {
	for i, a := range s.args {
		if a == "--cluster-port" {
			port, _ := strconv.Atoi(s.args[i+1])
			return port
		}
	}
	return s.Port + 10000
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Client returns a cluster client, closed with the test.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Owner returns the node that serves the key's slot now, and the slot. A node that does not serve it names another.
func (c *Cluster) Owner(key string) (*Server, int64) {
	slot, _ := c.Nodes[0].Do("CLUSTER", "KEYSLOT", key).(int64)
	for _, n := range c.Nodes {
		if _, moved := redis.IsMovedError(n.Client().Exists(context.Background(), key).Err()); !moved {
			return n, slot
		}
	}
	c.t.Fatalf("no node serves slot %d", slot)
	return nil, 0
}

// Remove makes the cluster smaller by its last node, as redis-cli --cluster does: the first node gets the slots, whose keys are deleted. The
// others forget the node, which goes on running by itself.
func (c *Cluster) Remove() {
	c.t.Helper()
	last := len(c.Nodes) - 1
	n, to := c.Nodes[last], c.Nodes[0]
	n.Do("FLUSHALL")
	assign := func(at *Server, state ...any) {
		_, err := at.Client().Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for slot := last * slots / 3; slot < slots; slot++ {
				p.Do(context.Background(), append([]any{"CLUSTER", "SETSLOT", slot}, state...)...)
			}
			return nil
		})
		if err != nil {
			c.t.Fatalf("slots: %v", err)
		}
	}
	assign(to, "IMPORTING", n.ID())
	assign(n, "MIGRATING", to.ID())
	for _, at := range c.Nodes[:last] { // the node hears of it, and may become a replica
		assign(at, "NODE", to.ID())
	}
	for _, at := range c.Nodes[:last] {
		at.Do("CLUSTER", "FORGET", n.ID())
	}
	n.Do("CLUSTER", "RESET", "SOFT")
}

// ID returns the node's name in the cluster.
func (s *Server) ID() string {
	id, _ := s.Do("CLUSTER", "MYID").(string)
	return id
}

// Eventually waits until ok, at most d, and fails the test otherwise.
func Eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(d); ; time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}
