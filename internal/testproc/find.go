package testproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// TB is the part of a testing.TB that this package needs. A TestMain has a small one of its own.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Required reports whether a missing server is a failure.
func Required() bool { return os.Getenv("WLLOCK_REQUIRE_SERVERS") == "1" }

// Need skips the test when err says that something is missing, or fails it if servers are required.
func Need(t TB, err error) {
	t.Helper()
	if err != nil && Required() {
		t.Fatalf("%v, and WLLOCK_REQUIRE_SERVERS=1", err)
	} else if err != nil {
		t.Skipf("%v", err)
	}
}

// Find returns the path of a program: from PATH, or from the folders that the patterns name. Of several the last one by
// name counts, which is the newest where folders are named by versions of equal length.
func Find(name string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(pattern, name))
		if err == nil && len(found) > 0 {
			return slices.Max(found), nil
		}
	}
	return "", fmt.Errorf("%s is neither in PATH nor in %v", name, patterns)
}

// FreePort returns a port of 127.0.0.1 between first and last that is free, and that no other test gets before the end of this
// one. So a server that is killed there can restart, and two that start at once do not get the same. Another program may take
// it. Ports should lie below the range that Linux uses for outgoing connections (32768).
func FreePort(t TB, first, last int) int {
	t.Helper()
	for range 1000 {
		port := first + rand.IntN(last-first)
		if !reserve(t, port) {
			continue
		}
		l, err := net.Listen("tcp", Loopback(port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no free port")
	return 0
}

// reserve locks a port's file for as long as the test runs. Processes of tests share the files, and a lock ends with its process.
func reserve(t TB, port int) bool {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "wllock-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatalf("%v", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if !lock(f) {
		_ = f.Close()
		return false
	}
	t.Cleanup(func() { _ = f.Close() })
	return true
}

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// TempDir makes a folder that is removed with the test. Its path is short, unlike that of t.TempDir: the path of a unix
// socket is limited to 108 bytes.
func TempDir(t TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp(DataDir(), name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
