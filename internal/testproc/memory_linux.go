package testproc

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// DataDir is where servers have their data: in memory where that has room, since they create many files, and wait for the disk with each
// change. "" is the folder of temporary files. Outside of tests the disk is part of what is measured.
var DataDir = sync.OnceValue(func() string {
	const inMemory, room = "/dev/shm", 4 << 30
	var s syscall.Statfs_t
	if !testing.Testing() || syscall.Statfs(inMemory, &s) != nil || s.Bavail*uint64(s.Bsize) < room {
		return ""
	}
	dir, err := ownFolder(filepath.Join(inMemory, "wllock-tests-"+strconv.Itoa(os.Getuid())))
	if err != nil {
		return ""
	}
	return dir
})

// owned is the locked file in the folder of this process. It stays open for as long as the process lives.
var owned *os.File

// ownFolder makes a folder of this process below top, and removes those of processes that have gone: one that is killed removes nothing,
// and this is memory.
func ownFolder(top string) (string, error) {
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", err
	}
	turn, err := os.OpenFile(top+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = turn.Close() }() // with which another process has its turn
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	all, err := os.ReadDir(top)
	if err != nil {
		return "", err
	}
	for _, d := range all {
		dir := filepath.Join(top, d.Name())
		f, err := os.Open(filepath.Join(dir, "owned"))
		if err != nil || lock(f) {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
	dir, err := os.MkdirTemp(top, "")
	if err == nil {
		err = os.Chmod(dir, 0o755) // servers run as other users
	}
	if err == nil {
		owned, err = os.Create(filepath.Join(dir, "owned"))
	}
	if err == nil {
		err = syscall.Flock(int(owned.Fd()), syscall.LOCK_EX)
	}
	return dir, err
}
