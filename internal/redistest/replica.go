package redistest

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replicated is a primary with a replica, and a proxy on the way of what is replicated.
type Replicated struct {
	Primary, Replica *Server
	Link             *Proxy
}

// StartReplicated starts both, and waits until the replica follows.
func StartReplicated(t testing.TB) *Replicated {
	t.Helper()
	p := Start(t, "--repl-diskless-sync", "no") // with it the primary waits, and then for the first acknowledgement, of each second
	r := &Replicated{Primary: p, Link: NewProxy(t, p.Addr), Replica: Start(t)}
	r.Follow(1)
	return r
}

// Follow has the replica be one, of what the primary has now, and waits until so many replicas acknowledge what that writes.
func (r *Replicated) Follow(replicas int) {
	r.Primary.t.Helper()
	host, port, _ := net.SplitHostPort(r.Link.Addr)
	r.Replica.Do("REPLICAOF", host, port)
	r.Primary.followedBy(replicas)
}

// followedBy waits until so many replicas acknowledge what is written. A node of a cluster takes keys of its slots only.
func (s *Server) followedBy(replicas int) {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 1}) // WAIT is about its own connection
	defer func() { _ = c.Close() }()
	n, ctx := 0, s.t.Context()
	Eventually(s.t, readyWait, "the replicas follow", func() bool {
		n++
		return c.Set(ctx, fmt.Sprint("followed", n), "", time.Second).Err() == nil && c.Do(ctx, "WAIT", replicas, 100).Val() == int64(replicas)
	})
}

// Promote makes the replica a primary.
func (r *Replicated) Promote() { r.Replica.Do("REPLICAOF", "NO", "ONE") }
