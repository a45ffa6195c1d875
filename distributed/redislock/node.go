package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/deadline"
)

// node is what goes on in the background for the locks of one server: a cluster has several, and one that hangs must not
// hold up what the others are asked. A lock that moves to another node in a reshard stays, for the attempts that there are,
// with the one it had; where its calls go is the client's affair.
type node struct {
	b       *Backend
	keeper  *keepalive.Keeper
	beats   *deadline.Set[*attempt]
	beating chan struct{} // one for each batch of heartbeats under way
	errands *errands
}

func newNode(b *Backend) *node {
	n := &node{b: b, beating: make(chan struct{}, maxBeating), errands: &errands{b: b}}
	n.keeper = keepalive.NewKeeper(b.renew)
	n.beats = deadline.New(n.beat)
	return n
}

// node returns the one that has the key.
func (b *Backend) node(key string) *node {
	name := b.tr.node(context.Background(), key)
	if name == "" {
		return b.home
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[name]
	if n == nil {
		n = newNode(b)
		n.errands.closed = b.closed // or nobody would wait for them
		b.nodes[name] = n
	}
	return n
}

// closeNodes ends all that goes on. Nothing begins any more.
func (b *Backend) closeNodes() {
	b.mu.Lock()
	all := []*node{b.home}
	for _, n := range b.nodes {
		all = append(all, n)
	}
	b.mu.Unlock()
	give := time.Now().Add(closeGrace)
	var wg sync.WaitGroup
	for _, n := range all {
		wg.Go(func() {
			n.keeper.Close()
			n.beats.Close()
			n.errands.close(give)
		})
	}
	wg.Wait()
}
