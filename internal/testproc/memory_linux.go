package testproc

import (
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
	return inMemory
})
