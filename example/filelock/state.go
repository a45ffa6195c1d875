//go:build unix

package filelock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	fenceBlock = 1000
	// lockWait bounds how long a change waits for its file: an Enter is one bounded exchange.
	lockWait = time.Second
)

// state is the content of a key's file: its owners (one exclusive, or shared ones only) and its queue.
type state struct {
	Key           string // for people who look into the file
	Fence         uint64 // the last one reserved
	Owners, Queue []*claim
}

// claim is an owner or a waiter. It has gone once Expires has passed without a renewal, or a heartbeat.
type claim struct {
	ID, Instance string
	Shared       bool
	TTL          time.Duration
	Expires      int64  // Unix time in nanoseconds
	Fence        uint64 // of an owner: the last one reserved
}

// advance drops what has expired and grants the lock to the head of the queue, for the claim window.
func (s *state) advance(now time.Time) {
	expired := func(c *claim) bool { return c.expired(now) }
	s.Owners, s.Queue = slices.DeleteFunc(s.Owners, expired), slices.DeleteFunc(s.Queue, expired)
	for len(s.Queue) > 0 && s.admits(s.Queue[0]) {
		c := s.Queue[0]
		s.Owners, s.Queue = append(s.Owners, c), s.Queue[1:]
		c.Expires = now.Add(distributed.ClaimWindow(c.TTL)).UnixNano()
		s.reserve(c, now)
	}
}

// reserve takes a block of fences for an owner, so it never draws one above its successor's, and one for a reader. They
// start at the clock, so they grow even if the file is deleted.
func (s *state) reserve(c *claim, now time.Time) {
	s.Fence = max(s.Fence, uint64(now.UnixNano())) + fenceBlock
	c.Fence = s.Fence
}

func (c *claim) expired(now time.Time) bool { return c.Expires <= now.UnixNano() }

func (s *state) admits(c *claim) bool {
	return len(s.Owners) == 0 || c.Shared && s.Owners[0].Shared
}

// remove removes an owner or waiter, and reports whether it was there.
func (s *state) remove(id string) bool {
	n := len(s.Owners) + len(s.Queue)
	match := func(c *claim) bool { return c.ID == id }
	s.Owners, s.Queue = slices.DeleteFunc(s.Owners, match), slices.DeleteFunc(s.Queue, match)
	return len(s.Owners)+len(s.Queue) < n
}

func find(claims []*claim, id string) *claim {
	if i := slices.IndexFunc(claims, func(c *claim) bool { return c.ID == id }); i >= 0 {
		return claims[i]
	}
	return nil
}

// file returns the name of a key's file. Keys may contain any character.
func (b *Backend) file(key string) string {
	return filepath.Join(b.dir, fmt.Sprintf("%.16x", sha256.Sum256([]byte(key))))
}

// read reads a key's file. It needs no lock, since rename never shows half of it.
func (b *Backend) read(key string) (s *state, data []byte, err error) {
	s = &state{Key: key}
	if data, err = os.ReadFile(b.file(key)); err == nil {
		err = json.Unmarshal(data, s)
	}
	return s, data, err
}

// update changes a key's file under its lock, as a whole or not at all.
func (b *Backend) update(ctx context.Context, key string, change func(s *state, now time.Time)) error {
	if b.ctx.Err() != nil {
		return distributed.ErrClosed
	}
	file := b.file(key)
	err := locked(ctx, file+".lock", func() error {
		s, old, err := b.read(key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		now := time.Now()
		s.advance(now)
		change(s, now)
		s.advance(now)
		data, err := json.Marshal(s)
		if err != nil || bytes.Equal(data, old) {
			return err
		}
		if err := os.WriteFile(file+".new", data, 0o600); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	})
	if err != nil {
		return fmt.Errorf("%w: filelock: %w", distributed.ErrUnavailable, err)
	}
	return nil
}

// locked runs change while it holds a file's lock. It polls, because a blocked flock would not end with ctx.
func locked(ctx context.Context, file string, change func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // which unlocks it, as does the end of the process
	for ctx.Err() == nil {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return change()
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		time.Sleep(pollInterval / 20)
	}
	return ctx.Err()
}
