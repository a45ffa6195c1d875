//go:build linux

package command

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
)

// inNamespace starts a wllock that is process 1 of a namespace of its own, as in a container or a sandbox.
func inNamespace(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	unshare := []string{"--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := exec.Command("unshare", append(unshare, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v: %s", err, out)
	}
	return command(t, env).by("/usr/bin/setsid", append(append([]string{"unshare"}, unshare...), append([]string{os.Args[0]}, args...)...)...)
}

// Process 1 has no process group that it could name, takes no signal's default action, and is the parent of all orphans.
func TestRunAsProcessOne(t *testing.T) {
	t.Parallel()
	env := file(t)
	for script, want := range map[string]struct {
		code int
		out  string
	}{
		"echo pid $PPID": {0, "pid 1\n"},
		"kill -TERM $$":  {128 + 15, ""},
		`for i in 1 2 3 4 5 6 7 8; do (true &); done
		while ls -d /proc/[0-9]* | xargs -I_ cat _/stat 2>/dev/null | grep -q ') Z 1 '; do sleep 0.01; done; echo reaped`: {0, "reaped\n"},
	} {
		p := inNamespace(t, env, "run", "n", "1", "--", "sh", "-c", script)
		require.Equal(t, want.code, p.ends(), p.err.String())
		require.Equal(t, want.out, p.out.String())
	}
}

// What has obeyed is not waited for, though nobody but process 1 looks at its end.
func TestRunAsProcessOneEndsWhatLostItsLock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := inNamespace(t, file(t), "run", "--lock-time-max", "300ms", "--grace", "60s", "n", "1", "--", "sh", "-c", "(sleep 60 & sleep 60 &); exec sleep 60")
	require.Equal(t, lost, p.ends(), p.err.String())
	testscope.InTime(t, time.Since(began), 10*time.Second, "the end")
}

// The threads of a run are there before it has a lock: a command that uses up the limit of processes cannot end wllock.
func TestRunHasItsThreadsBefore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	startThreads()
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(threads), spareThreads)
}
