//go:build unix

// Package filelock is an example of a backend: a lock service for the processes of one machine, in a directory.
// docs/backend-howto.md refers to it.
//
// Each key has a file with its owners and its queue. It is changed under flock and replaced by rename, so it is never half
// written. There is no server: every change first drops what has expired, and every process polls the files of its places
// and leases.
//
// Limits: one machine (flock, and one clock for all) and a local file system. A hand-over takes half a poll, and polls
// read a file for each place and lease. Files stay when their keys are not used any more. While a process is stopped in
// the middle of a change, calls for that key fail with ErrUnavailable.
package filelock

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// pollInterval is how often the files in use are read: a hand-over takes half of it.
const pollInterval = 5 * time.Millisecond

// Backend is a distributed.Backend over a directory.
type Backend struct {
	dir    string
	keeper *keepalive.Keeper
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // releases in the background; Add under mu, unless closed
	poller sync.WaitGroup

	mu     sync.Mutex // guards all below; not held during I/O
	closed bool
	places map[*place]bool
	leases map[*lease]bool // that are held, or whose release has failed
}

// New returns a Backend over dir, which it creates if needed. All processes that name the same directory share its locks.
func New(dir string) (*Backend, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("filelock: %w", err)
	}
	b := &Backend{dir: dir, places: map[*place]bool{}, leases: map[*lease]bool{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.keeper = keepalive.NewKeeper(b.renew)
	b.poller.Go(b.poll)
	return b, nil
}

// Enter implements distributed.Backend. One change of the key's file releases prev and takes the lock or a place.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if req.TTL < distributed.MinTTL {
		return nil, nil, fmt.Errorf("filelock: lease TTL %v is below %v", req.TTL, distributed.MinTTL)
	}
	if err := req.Unlimited(); err != nil {
		return nil, nil, fmt.Errorf("filelock: %w", err)
	}
	prev, ok := distributed.As[*lease](req.Prev)
	if ok = ok && prev.backend == b && prev.key == req.Key && prev.Instance == req.Instance; ok {
		prev.Finish() // before the change: from here on it is neither renewed nor reported lost
	}
	c := &claim{ID: rand.Text(), Instance: req.Instance, Shared: req.Mode == distributed.Shared, TTL: req.TTL}
	var granted, queued, released bool
	err := b.update(ctx, req.Key, func(s *state, now time.Time) {
		if ok {
			released = prev.removeFrom(s)
			s.advance(now) // the queue comes first
		}
		granted = len(s.Queue) == 0 && s.admits(c)
		queued = !granted && !req.NoWait
		if granted || queued {
			c.Expires = now.Add(distributed.ClaimWindow(c.TTL)).UnixNano()
			s.Queue = append(s.Queue, c) // from which update advances it
		}
	})
	if err != nil {
		if released {
			prev.released.Store(false) // it is still in the file
		}
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok {
		delete(b.leases, prev)
	}
	switch {
	case b.closed: // c expires within the claim window
		return nil, nil, distributed.ErrClosed
	case granted:
		return b.keep(req.Key, c, nil), nil, nil
	case queued:
		p := &place{backend: b, key: req.Key, claim: *c, granted: make(chan distributed.Lease, 1)}
		b.places[p] = true
		return nil, p, nil
	}
	return nil, nil, distributed.ErrHeld
}

// Ping implements distributed.Backend.
func (b *Backend) Ping(ctx context.Context) error {
	return b.update(ctx, "", func(*state, time.Time) {})
}

// Close implements distributed.Backend. What it cannot remove from the files expires.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	places := b.places
	b.places = nil
	b.mu.Unlock()
	for p := range places {
		close(p.granted)
		_ = p.remove()
	}
	b.tasks.Wait()
	b.cancel()
	b.keeper.Close()
	b.poller.Wait()
	return nil
}

// poll looks for grants, losses and waiters in the files, until Close.
func (b *Backend) poll() {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-b.ctx.Done():
			return
		}
		b.mu.Lock()
		places, leases := slices.Collect(maps.Keys(b.places)), slices.Collect(maps.Keys(b.leases))
		b.mu.Unlock()
		for _, p := range places {
			if s, _, err := b.read(p.key); err == nil {
				p.look(s, time.Now())
			}
		}
		for _, l := range leases {
			if s, _, err := b.read(l.key); err == nil {
				l.look(s, time.Now())
			}
		}
	}
}
