package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Clock is the wall clock of a server. It stands still until it is set.
type Clock struct {
	t    testing.TB
	file *os.File
}

//go:embed testdata/clock.c
var clockSource []byte

// StartWithClock is Start for a server whose time the test sets; it begins at now. It needs Linux and gcc.
func StartWithClock(t testing.TB, now time.Time, args ...string) (*Server, *Clock) {
	t.Helper()
	need(t)
	needCompiler(t)
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	c := &Clock{t, file}
	c.Set(now)
	return start(t, 0, []string{"LD_PRELOAD=" + library, "REDISTEST_CLOCK=" + file.Name()}, append(inMemory(), args...)), c
}

// Set sets the clock. What is sent to the server afterwards sees the new time.
func (c *Clock) Set(now time.Time) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(now.UnixMicro()))
	if _, err := c.file.WriteAt(b[:], 0); err != nil {
		c.t.Fatal(err)
	}
}

func needCompiler(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the clock of a redis-server can be set on Linux only")
	}
	if _, err := exec.LookPath("gcc"); err == nil {
		return
	}
	if os.Getenv("WLLOCK_REQUIRE_SERVERS") == "1" {
		t.Fatal("gcc is not in PATH, and WLLOCK_REQUIRE_SERVERS=1")
	}
	t.Skip("gcc is not in PATH")
}
