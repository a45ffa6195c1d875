package redislock

import (
	"context"
	"slices"
	"sync"

	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/identity"
)

// node is what goes on in the background for the locks of one server. A cluster has several, and one that hangs must not
// delay what the others are asked. When a lock moves to another node in a reshard, the attempts that exist stay with
// their node here; the client alone decides where their calls go.
type node struct {
	b     *Backend
	lane  *driver.Lane[claim] // its leases are renewed together (rule R8)
	beats chan struct{}       // one for each batch of heartbeats under way

	doubts doubts
}

func newNode(b *Backend) *node {
	return &node{b: b, lane: b.client.NewLane(b.s.ctx, nil), beats: make(chan struct{}, maxHeartbeats)}
}

// nodes are those of a Backend.
type nodes struct {
	b    *Backend
	home *node // of a single server, and of what is asked before a cluster is known

	mu     sync.Mutex
	byAddr map[string]*node // guarded by mu; of a cluster
}

func newNodes(b *Backend) *nodes {
	return &nodes{b: b, home: newNode(b), byAddr: make(map[string]*node)}
}

// of returns the node that has the key.
func (n *nodes) of(key string) *node {
	addr := n.b.s.tr.Node(context.Background(), key)
	if addr == "" {
		return n.home
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.byAddr[addr]
	if found == nil {
		found = newNode(n.b)
		n.byAddr[addr] = found
	}
	return found
}

func (n *nodes) all() []*node {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := []*node{n.home}
	for _, one := range n.byAddr {
		all = append(all, one)
	}
	return all
}

// find returns the attempt with that id; nil: nothing of it is left here.
func (n *nodes) find(id identity.Attempt) *attempt {
	if a := n.home.find(id); a != nil {
		return a
	}
	n.mu.Lock() // taken before that of a lane
	defer n.mu.Unlock()
	for _, one := range n.byAddr {
		if a := one.find(id); a != nil {
			return a
		}
	}
	return nil
}

func (n *node) find(id identity.Attempt) *attempt {
	if a := n.lane.Find(id.Number); a != nil && a.Wire.id == id {
		return a
	}
	return nil
}

// attempts returns all of which something is left.
func (n *nodes) attempts() (all []*attempt) {
	for _, one := range n.all() {
		all = slices.Concat(all, one.lane.Attempts())
	}
	return all
}

// some returns up to so many of each.
func (n *nodes) some(most int) (all []*attempt) {
	for _, one := range n.all() {
		all = slices.Concat(all, one.lane.Some(most))
	}
	return all
}

// close ends what is under way. What cannot be released in time expires by itself.
func (n *nodes) close() {
	var wg sync.WaitGroup
	for _, one := range n.all() {
		wg.Go(func() {
			one.lane.Flush(closeGrace)
			one.lane.Shut()
		})
	}
	wg.Wait()
}
