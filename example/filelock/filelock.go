//go:build unix

// Package filelock is an example of a backend: a lock service for the processes of one machine, in a directory.
// docs/backend-howto.md refers to it.
//
// Each key has a file with the document of its lock. It is changed under flock and replaced by rename, so it is never half written. What is
// in the document, and what becomes of a request, is package register's affair.
//
// Limits: one machine (flock) and a local file system. The files stay when their keys are not used any more: one that is two days old can be
// removed while no process uses the directory. A holder that has died is found by a process that waits, or asks twice. While a
// process is stopped in the middle of a change, calls for that key fail with ErrUnavailable. A clock of the machine that is set forward by
// 2 T makes held locks free. Remove the directory when the machine has crashed: files may be torn, and are left alone then.
package filelock

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
)

// New returns a Backend over dir, which it creates if needed. All processes that name the same directory share its locks.
func New(dir string) (*register.Backend, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("filelock: %w", err)
	}
	return register.New("filelock", store{dir}), nil
}

// store is a directory as a register.Store.
type store struct{ dir string }

// file returns the name of a key's file. Keys may contain any character.
func (s store) file(key string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%.16x", sha256.Sum256([]byte(key))))
}

// Get implements register.Store. It needs no lock, since rename never shows half of a file. The first line of a file is its version, and when
// to forget it.
func (s store) Get(_ context.Context, key string) (register.Document, error) {
	text, err := os.ReadFile(s.file(key))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = os.Stat(s.dir); err == nil {
			return register.Document{}, nil
		}
	}
	head, data, _ := bytes.Cut(text, []byte("\n"))
	var version register.Version
	var until int64
	if err == nil {
		_, err = fmt.Sscan(string(head), &version, &until)
	}
	switch {
	case err != nil:
		return register.Document{}, failed(err)
	case time.Now().UnixNano() >= until:
		return register.Document{}, nil
	}
	return register.Document{Data: data, Version: version}, nil
}

// Put implements register.Store.
func (s store) Put(ctx context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	version := register.Version(crand.Text())
	return version, s.change(ctx, key, from, func(file string) error {
		head := fmt.Sprintln(version, time.Now().Add(keep).UnixNano())
		if err := os.WriteFile(file+".new", append([]byte(head), data...), 0o600); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	})
}

const (
	// lockWait bounds how long a change waits for its file.
	lockWait = time.Second
	// lockPoll is the first pause between two tries, and mostPoll the longest: a crowd leaves the processor to who has the file.
	lockPoll, mostPoll = time.Millisecond / 4, 8 * time.Millisecond
)

// change changes a key's file under its lock, if it has the version from. It polls, because a blocked flock would not end.
func (s store) change(ctx context.Context, key string, from register.Version, do func(file string) error) error {
	file := s.file(key)
	f, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = f.Close() }() // which unlocks it, as does the end of the process
	for start, wait := time.Now(), lockPoll; ; wait = min(2*wait, mostPoll) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		busy := errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		if ctx.Err() != nil {
			return register.ErrConflict // nobody waits for it: leave the file to others
		}
		if !busy || time.Since(start) > lockWait {
			break
		}
		time.Sleep(wait/2 + rand.N(wait))
	}
	if err != nil {
		return distributed.Unavailable("filelock", err) // busy: try again
	}
	switch d, err := s.Get(ctx, key); {
	case err != nil:
		return err
	case d.Version != from:
		return register.ErrConflict
	}
	if err := do(file); err != nil {
		return failed(err)
	}
	return nil
}

// failed says that nothing was changed: a rename, or a removal, is the last step. So nobody need try again, as after a request whose
// reply was lost.
func failed(err error) error {
	if errors.Is(err, fs.ErrNotExist) { // the directory
		return distributed.Unavailable("filelock", err, distributed.ErrUnreached)
	}
	return distributed.Unavailable("filelock", err, distributed.ErrRefused)
}
