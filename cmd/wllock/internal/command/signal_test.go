//go:build linux

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/cmd/wllock/internal/child"
	"github.com/wllock/wllock/internal/testscope"
)

// file is the environment for locks in a file of the test's own: no server is needed, and no other test is in the way.
func file(t *testing.T) []string {
	t.Helper()
	return shop("sqlite://" + filepath.Join(t.TempDir(), "locks.db"))
}

// Who ends by a signal makes a shell stop its script: so wllock ends as the command did, and leaves no core file of its own.
func TestRunDiesByTheSignalOfItsCommand(t *testing.T) {
	t.Parallel()
	env := file(t)
	for name, signal := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM,
		"SEGV": syscall.SIGSEGV, "PIPE": syscall.SIGPIPE, "USR1": syscall.SIGUSR1, "ALRM": syscall.SIGALRM,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, env, "run", "n", name, "--", "sh", "-c", "ulimit -c 0; kill -"+name+" $$; sleep 60")
			require.Equal(t, -int(signal), p.ends(), p.err.String())
			status, _ := p.ProcessState.Sys().(syscall.WaitStatus)
			require.False(t, status.CoreDump())
			require.Empty(t, p.err.String())
			exits(t, 0, env, "run", "-n", "n", name, "--", "true") // the lock was released
		})
	}
}

// A shell goes on after a command that took Ctrl-C for its own business, and stops after one that died by it: also while it waits.
func TestRunStopsAShellsLoop(t *testing.T) {
	t.Parallel()
	env := file(t)
	start(t, env, "run", "n", "held", "--", "sh", "-c", "echo in; exec sleep 3600").says("in") // until the test ends: its cases may have to wait for a slot
	for name, test := range map[string]struct{ line, command, want string }{
		"the command dies":   {`"$0" run n 1 -- sh -c "$1" sh $$`, "sleep 0.1; kill -INT -$1; sleep 1", "1"},
		"it takes the key":   {`"$0" run n 2 -- sh -c "$1" sh $$`, "trap 'exit 0' INT; sleep 0.1; kill -INT -$1; sleep 1", "1 2 3"},
		"still waiting":      {`(until "$0" who n held | grep -q "waiting  [1-9]"; do sleep 0.1; done; kill -INT -$$) & "$0" run n held -- true`, "", "1"},
		"plain, to compare":  {`sh -c "$1" sh $$`, "sleep 0.1; kill -INT -$1; sleep 1", "1"},
		"plain, takes a key": {`sh -c "$1" sh $$`, "trap 'exit 0' INT; sleep 0.1; kill -INT -$1; sleep 1", "1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, env)
			p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			p.by("/bin/bash", "-c", `for i in 1 2 3; do echo $i; `+test.line+`; done`, os.Args[0], test.command).ends()
			require.Equal(t, test.want, strings.Join(strings.Fields(p.out.String()), " "), p.err.String())
		})
	}
}

// Each signal that a program can handle comes to the command.
func TestRunPassesAllSignalsOn(t *testing.T) {
	testscope.Long(t, "failed by chance: see CONTRIBUTING.md")
	t.Parallel()
	p := start(t, file(t), "run", "n", "1", "--", "bash", "-c",
		`for n in $(seq 64); do trap "echo got $n." $n 2>/dev/null; done; echo in; while :; do sleep 0.01; done 2>/dev/null`).says("in\n")
	for _, s := range child.Signals() {
		n, _ := s.(syscall.Signal)
		require.NoError(t, p.Process.Signal(n))
		p.says(fmt.Sprintf("got %d.", int(n)))
	}
	require.NoError(t, p.Process.Kill())
}

// While wllock stands still its lock expires: it is stopped only together with its command, and they go on together.
func TestRunIsStoppedWithItsCommand(t *testing.T) {
	t.Parallel()
	p := start(t, append(file(t), "WLLOCK_LEASE_TTL=60s"), "run", "n", "1", "--", "sh", "-c", "echo pid $$ in; exec sleep 60").says("in\n")
	stops := func(stopped bool) {
		require.Eventually(t, func() bool {
			for _, pid := range []string{pidOf(p, "pid"), strconv.Itoa(p.Process.Pid)} {
				text, err := os.ReadFile("/proc/" + pid + "/stat")
				if err != nil || strings.Contains(string(text), ") T ") != stopped {
					return false
				}
			}
			return true
		}, patience, time.Millisecond)
	}
	for range 3 {
		require.NoError(t, p.Process.Signal(syscall.SIGTSTP))
		stops(true)
		require.NoError(t, p.Process.Signal(syscall.SIGCONT))
		stops(false)
	}
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, -int(syscall.SIGTERM), p.ends())
}

// A job that others have is no news for cron, and its own codes are told from wllock's.
func TestRunWhenOthersHaveTheLock(t *testing.T) {
	t.Parallel()
	env := file(t)
	start(t, env, "run", "n", "1", "--", "sh", "-c", "echo in; exec sleep 60").says("in")
	for name, test := range map[string]struct {
		flags string
		code  int
		says  bool
	}{
		"by default": {"-n", notAcquired, true},
		"-E":         {"-n -E 3", 3, true},
		"both":       {"-w 50ms --quiet --conflict-exit-code 0", 0, false},
	} {
		_, err := exits(t, test.code, env, append(append([]string{"run"}, strings.Fields(test.flags)...), "n", "1", "--", "true")...)
		require.Equal(t, test.says, err != "", "%s: %s", name, err)
	}
	_, err := exits(t, 127, env, "run", "-n", "-q", "n", "1", "--", "no-such-program")
	require.NotEmpty(t, err)
}
