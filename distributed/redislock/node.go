package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed/keepalive"
)

// node is what goes on in the background for the locks of one server. A cluster has several, and one that hangs must not
// delay what the others are asked. When a lock moves to another node in a reshard, the attempts that exist stay with
// their node here; the client alone decides where their calls go.
type node struct {
	s          *session
	keeper     *keepalive.Keeper // renews all leases by one timer (rule R8)
	heartbeats *heartbeats
	background *background
}

func newNode(s *session) *node {
	return &node{s: s, keeper: keepalive.NewKeeper(s.renew), heartbeats: newHeartbeats(s), background: &background{s: s}}
}

// nodes are those of a Backend.
type nodes struct {
	s    *session
	home *node // of a single server, and of what is asked before a cluster is known

	mu     sync.Mutex
	byAddr map[string]*node // guarded by mu; of a cluster
	closed bool             // guarded by mu
}

func newNodes(s *session) *nodes {
	return &nodes{s: s, home: newNode(s), byAddr: make(map[string]*node)}
}

// of returns the node that has the key.
func (n *nodes) of(key string) *node {
	addr := n.s.tr.Node(context.Background(), key)
	if addr == "" {
		return n.home
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.byAddr[addr]
	if found == nil {
		found = newNode(n.s)
		found.background.closed = n.closed // or nobody would wait for its tasks
		n.byAddr[addr] = found
	}
	return found
}

// close ends everything in the background, what cannot be done by then included.
func (n *nodes) close(giveUp time.Time) {
	n.mu.Lock()
	n.closed = true
	all := []*node{n.home}
	for _, one := range n.byAddr {
		all = append(all, one)
	}
	n.mu.Unlock()
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() {
			one.keeper.Close()
			one.heartbeats.due.Close()
			one.background.close(giveUp)
		})
	}
	wg.Wait()
}
