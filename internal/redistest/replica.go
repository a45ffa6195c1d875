package redistest

import (
	"net"
	"strings"
	"testing"
)

// Replicated is a primary with a replica, and a proxy on the way of what is replicated.
type Replicated struct {
	Primary, Replica *Server
	Link             *Proxy
}

// StartReplicated starts both, and waits until the replica follows.
func StartReplicated(t testing.TB) *Replicated {
	t.Helper()
	p := Start(t, "--repl-diskless-sync-delay", "0")
	r := &Replicated{Primary: p, Link: NewProxy(t, p.Addr), Replica: Start(t)}
	r.Follow()
	return r
}

// Follow makes the replica one again, of what the primary has, and waits until it follows.
func (r *Replicated) Follow() {
	r.Primary.t.Helper()
	host, port, _ := net.SplitHostPort(r.Link.Addr)
	r.Replica.Do("REPLICAOF", host, port)
	Eventually(r.Primary.t, readyWait, "the replica follows", func() bool {
		info, _ := r.Primary.Do("INFO", "replication").(string)
		return strings.Contains(info, "state=online")
	})
}

// Promote makes the replica a primary.
func (r *Replicated) Promote() { r.Replica.Do("REPLICAOF", "NO", "ONE") }
