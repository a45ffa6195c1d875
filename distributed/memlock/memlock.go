// Package memlock is the lock service inside one process: the backend of a program that runs once, of tests, and the
// model that backends over a network are compared with.
//
// It keeps apart what is apart in a real service. The server side (shard.go) knows owners, queues and its own clock,
// and lets a lease expire that nobody renews. The client side (lease.go) knows what it was told, and learns of a loss at
// its next renewal. Partition cuts the line between the two, Expire makes the server forget.
//
// All instances that are to exclude each other share one Backend. Its fences start at the time of New in nanoseconds,
// so they go on growing when the program is started again.
package memlock

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Backend is a distributed.Backend in memory, FIFO over all instances that share it. It has no goroutine of its own:
// timers wake it when a lease is to be renewed or expires.
type Backend struct {
	seed   maphash.Seed
	closed atomic.Bool // read under a shard's mu, so whoever gets the lock after Close has swept the shard sees it
	cut    atomic.Bool // the same, for Partition
	shards [shardCount]shard
}

// shardCount is how many keys can be worked on at the same moment: some times the cores of the machines it is for.
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

// reachable says whether the client side gets through to the server side. The caller holds a shard's mu.
func (b *Backend) reachable() error {
	if b.closed.Load() {
		return distributed.ErrClosed
	}
	if b.cut.Load() {
		return fmt.Errorf("partitioned: %w", distributed.ErrUnavailable)
	}
	return nil
}

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if req.TTL < distributed.MinTTL {
		return nil, nil, fmt.Errorf("lease TTL %v is below %v", req.TTL, distributed.MinTTL)
	}
	s := b.shardOf(req.Key)
	prev, ok := distributed.As[*lease](req.Prev)
	if ok && prev.shard == s && prev.key == req.Key && prev.instance == req.Instance {
		prev.Finish() // before the lock is taken: it may call the Watcher
	} else {
		prev = nil // somebody else's, which is not ours to give up
	}
	return s.enter(&req, prev)
}

// Ping implements distributed.Backend.
func (b *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.reachable()
}

// Close implements distributed.Backend. What is left of the server side goes away when the leases have run out.
func (b *Backend) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	for i := range b.shards {
		b.shards[i].close()
	}
	return nil
}

// Expire makes the server forget who has the key, as a DEL on a real one would: the next in the queue gets it, the
// holder learns of it at its next renewal.
func (b *Backend) Expire(key string) {
	s := b.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		for _, l := range slices.Clone(e.owners) {
			s.drop(l, gone)
		}
		s.advance(e)
		s.tidy(e)
	}
}

// Partition cuts the clients off from the server, or heals the cut. While it lasts, calls and renewals fail with
// ErrUnavailable and the server goes on by its clock. Grants it makes meanwhile are delivered by healing, unless their
// claim window is over; releases that were tried meanwhile are carried out then.
func (b *Backend) Partition(cut bool) {
	if b.cut.Swap(cut) && !cut {
		for i := range b.shards {
			b.shards[i].heal()
		}
	}
}
