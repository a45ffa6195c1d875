package testproc

import (
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Clock is the wall clock of servers that are started with its Env. It runs with this machine's until it is set.
type Clock struct {
	Env []string
	// In memory that the servers share: bytes written to the file could be read half-way, which is another time.
	setting *struct{ stands, ahead int64 } // microseconds
}

//go:embed testdata/clock.c
var clockSource []byte

// NewClock makes a clock, of a library that is preloaded into servers. It needs Linux and gcc.
func NewClock(t TB) *Clock {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skipf("the clock of a server can be set on Linux only")
	}
	_, err := Find("gcc")
	Need(t, err)
	dir := TempDir(t, "clock")
	source, library, file := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock")
	c := &Clock{Env: []string{"LD_PRELOAD=" + library, "TESTPROC_CLOCK=" + file}}
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(source, clockSource, 0o600), // a server may be another user's
		os.WriteFile(file, make([]byte, unsafe.Sizeof(*c.setting)), 0o644))
	if err == nil {
		_, err = Command{Path: "gcc", Args: []string{"-shared", "-fPIC", "-O2", "-o", library, source}, Dir: dir}.Output()
	}
	if err == nil {
		err = c.share(t, file)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

func (c *Clock) share(t TB, name string) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	page, err := syscall.Mmap(int(file.Fd()), 0, int(unsafe.Sizeof(*c.setting)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = syscall.Munmap(page) })
	c.setting = (*struct{ stands, ahead int64 })(unsafe.Pointer(&page[0]))
	return nil
}

// Set sets the clock, which then stands still. What is sent to the server afterwards sees the new time.
func (c *Clock) Set(now time.Time) { atomic.StoreInt64(&c.setting.stands, now.UnixMicro()) }

// Shift has the clock run ahead of this machine's by d, or behind.
func (c *Clock) Shift(d time.Duration) {
	atomic.StoreInt64(&c.setting.ahead, d.Microseconds())
	atomic.StoreInt64(&c.setting.stands, 0)
}
