package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/dbtest"
)

const (
	// actVariable makes the test binary the program itself.
	actVariable = "ACT_AS_WLLOCK"
	// patience is for what should come at once: long, because the machine may be busy.
	patience = 30 * time.Second
	// testTTL is that of locks over all backends: etcd grants leases of whole seconds.
	testTTL = 3 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(actVariable) != "" {
		os.Exit(Main(os.Args))
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

// buffer is what a process has written so far.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// program is a running wllock.
type program struct {
	*exec.Cmd
	t        *testing.T
	out, err buffer
}

// shop is the environment of tests: a backend, and leases that expire soon.
func shop(backend string, more ...string) []string {
	return append([]string{"WLLOCK_BACKEND=" + backend, "WLLOCK_SYSTEM_NAME=shop", "WLLOCK_LEASE_TTL=1s"}, more...)
}

// command makes a wllock that is not started.
func command(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...), t: t}
	p.Env = append(append(os.Environ(), actVariable+"=1"), env...)
	p.Stdout, p.Stderr = &p.out, &p.err
	p.WaitDelay = time.Second // of what a killed program leaves behind
	return p
}

// start starts a wllock, which is killed with the test.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := command(t, env, args...)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
	return p
}

// by starts another program instead, which may be given wllock's path.
func (p *program) by(path string, args ...string) *program {
	p.t.Helper()
	p.Path, p.Args = path, append([]string{filepath.Base(path)}, args...)
	require.NoError(p.t, p.Start())
	return p
}

// says waits until the program has written a text.
func (p *program) says(text string) *program {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.out.String()+p.err.String(), text) }, patience, time.Millisecond,
		"want %q", text)
	return p
}

// ends waits for the end and returns the exit code.
func (p *program) ends() int {
	p.t.Helper()
	_ = p.Wait()
	if s, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return -int(s.Signal())
	}
	return p.ProcessState.ExitCode()
}

// run runs a wllock to its end.
func run(t *testing.T, env []string, args ...string) (code int, out, err string) {
	t.Helper()
	p := start(t, env, args...)
	code = p.ends()
	return code, p.out.String(), p.err.String()
}

// exits runs a wllock to its end, which must be this one.
func exits(t *testing.T, want int, env []string, args ...string) (out, err string) {
	t.Helper()
	code, out, err := run(t, env, args...)
	require.Equal(t, want, code, "%v: %s%s", args, out, err)
	return out, err
}

// gone waits until there is no such process, or only what its parent has not looked at.
func gone(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(text), ") Z ")
	}, patience, time.Millisecond)
}
