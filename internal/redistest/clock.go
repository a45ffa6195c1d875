package redistest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/wllock/wllock/internal/testproc"
)

// Clock is the wall clock of a server. It stands still until it is set.
type Clock struct {
	us *int64 // in memory that the server shares: bytes written to the file could be read half-way, which is another time
}

//go:embed testdata/clock.c
var clockSource []byte

// StartWithClock is Start for a server whose time the test sets; it begins at now. It needs Linux and gcc.
func StartWithClock(t testing.TB, now time.Time, args ...string) (*Server, *Clock) {
	t.Helper()
	needCompiler(t)
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "clock")
	c := newClock(t, file)
	c.Set(now)
	return start(t, []string{"LD_PRELOAD=" + library, "REDISTEST_CLOCK=" + file}, append(inMemory(), args...)), c
}

func newClock(t testing.TB, name string) *Clock {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err = file.Truncate(8); err != nil {
		t.Fatal(err)
	}
	page, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(page) })
	return &Clock{(*int64)(unsafe.Pointer(&page[0]))}
}

// Set sets the clock. What is sent to the server afterwards sees the new time.
func (c *Clock) Set(now time.Time) { atomic.StoreInt64(c.us, now.UnixMicro()) }

func needCompiler(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the clock of a redis-server can be set on Linux only")
	}
	_, err := testproc.Find("gcc")
	testproc.Need(t, err)
}
