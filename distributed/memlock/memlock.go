// Package memlock is a lock service inside one process: a backend for programs that run as one process, and for tests. Backends over a
// network are compared with it.
//
// It separates the two sides of a real service. The server side (shard.go) has owners, queues and a clock of its own, and expires leases
// that are not renewed. The client side (lease.go) knows only the answers it got, and notices a loss at its next renewal. Partition cuts
// the connection between the two, and Expire makes the server forget an owner.
//
// All instances that exclude each other must share one Backend. Its fences start at the time of New in nanoseconds, so they continue to
// grow when the program is restarted.
package memlock

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is a distributed.Backend in memory, FIFO over all instances that share it. It has no goroutine of its own: timers run when a lease is
// due for renewal or expires.
type Backend struct {
	seed   maphash.Seed
	closed atomic.Bool // read under a shard's mu, so it is seen by all that lock mu after Close has swept the shard
	cut    atomic.Bool // the same, for Partition
	health health
	broken records
	runs   runs
	shards [shardCount]shard
}

// shardCount is how many keys can be worked on at the same time: a few times the cores of the machines it is for.
const shardCount = 32

// New returns an empty Backend.
func New() *Backend {
	b := &Backend{seed: maphash.MakeSeed()}
	fence := uint64(time.Now().UnixNano())
	for i := range b.shards {
		b.shards[i].init(b, fence)
	}
	return b
}

func (b *Backend) shardOf(key string) *shard {
	return &b.shards[maphash.String(b.seed, key)%shardCount]
}

// reachable returns nil if the client side can reach the server side. The caller holds a shard's mu.
func (b *Backend) reachable() error {
	if b.closed.Load() {
		return distributed.ErrClosed
	}
	if b.cut.Load() {
		return errCut
	}
	return nil
}

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if req.TTL < distributed.MinTTL {
		return nil, nil, keyless.Errorf("lease TTL %v is below %v", req.TTL, distributed.MinTTL)
	}
	if err := req.CheckLimit(); err != nil {
		return nil, nil, err
	}
	s := b.shardOf(req.Key)
	prev, ok := distributed.As[*lease](req.Prev)
	if ok && prev.shard == s && prev.key == req.Key && prev.instance == req.Instance {
		prev.Finish() // before the lock is taken: it may call the Watcher
	} else {
		prev = nil // another's, which this request may not release
	}
	lease, place, err := s.enter(&req, prev)
	b.health.exchanged(err)
	return lease, place, err
}

// Ping implements distributed.Backend.
func (b *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := b.reachable()
	b.health.exchanged(err)
	return err
}

// Close implements distributed.Backend. The rest of the server side is freed when the leases have expired.
func (b *Backend) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	for i := range b.shards {
		b.shards[i].close()
	}
	return nil
}

// Expire makes the server forget the owner of the key, as DEL does on Redis: the next in the queue gets the lock, and the holder notices at its
// next renewal.
func (b *Backend) Expire(key string) {
	s := b.shardOf(key)
	s.mu.Lock()
	defer s.unlock()
	if e := s.entries[key]; e != nil {
		for _, l := range slices.Clone(e.owners) {
			s.drop(l, gone)
		}
		s.advance(e)
		s.tidy(e)
	}
}

// Partition cuts the clients off from the server, or heals the cut. While it lasts, calls and renewals fail with ErrUnavailable and the server
// continues by its own clock. Healing delivers the grants made meanwhile, unless their claim window has passed, and carries out the releases
// tried meanwhile.
func (b *Backend) Partition(cut bool) {
	if b.cut.Swap(cut) && !cut {
		for i := range b.shards {
			b.shards[i].heal()
		}
	}
}
