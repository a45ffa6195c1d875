//go:build linux

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Variables by which systemd speaks to one process are the command's, and say so by its number; what names another process stays as it is.
func TestRunIsNotTheProcessThatSystemdMeans(t *testing.T) {
	t.Parallel()
	show := `echo "$LISTEN_PID $WATCHDOG_PID $LISTEN_FDS $LISTEN_PIDFDID$WLLOCK_RUN_STUB" | sed "s/$$/me/g"`
	for script, want := range map[string]string{
		`export LISTEN_FDS=2 LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_PIDFDID=7; exec "$0" run n 1 -- sh -c "$1"`: "me me 2 \n",
		`export LISTEN_FDS=2 LISTEN_PID=1 WATCHDOG_PID=$$; exec "$0" run n 1 -- sh -c "$1"`:                   "1 me 2 \n",
		`export LISTEN_FDS=2 LISTEN_PID=1 WATCHDOG_PID=; exec "$0" run n 1 -- sh -c "$1"`:                     "1  2 \n",
	} {
		p := command(t, file(t)).by("/bin/sh", "-c", script, os.Args[0], show)
		require.Zero(t, p.ends(), p.err.String())
		require.Equal(t, want, p.out.String())
	}
}

// install copies a program by another process: while this one has a file open to write, a child that another test starts may have it open
// as well, and the kernel executes no such file.
func install(t *testing.T, from, to, mode string) string {
	t.Helper()
	out, err := exec.Command("install", "-m", mode, from, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// A command that has become root takes no signals from another user: wllock says so and ends, and does not wait for it.
func TestRunSaysWhatItCannotEnd(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a program that becomes root is made by root")
	}
	dir := t.TempDir()
	for up := dir; up != os.TempDir(); up = filepath.Dir(up) {
		require.NoError(t, os.Chmod(up, 0o755))
	}
	locks := filepath.Join(dir, "locks")
	require.NoError(t, os.Mkdir(locks, 0o700))
	require.NoError(t, os.Chown(locks, 65534, 65534))
	become := install(t, "/usr/bin/setpriv", filepath.Join(dir, "become"), "4755")
	p := command(t, shop("sqlite://"+filepath.Join(locks, "locks.db")), "run", "--lock-time-max", "500ms", "--grace", "100ms", "n", "1", "--",
		become, "--reuid=0", "--regid=0", "--clear-groups", "sh", "-c", `echo pid $$ in; exec sleep 60 >/dev/null 2>&1`)
	p.Path, p.Dir = install(t, os.Args[0], filepath.Join(dir, "wllock"), "755"), dir
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setsid: true}
	require.NoError(t, p.Start())
	p.says("in\n")
	pid := pidOf(p, "pid")
	defer func() { require.NoError(t, exec.Command("kill", pid).Run()) }()
	require.NoError(t, p.Process.Signal(syscall.SIGUSR1))
	require.Equal(t, lost, p.ends(), p.err.String())
	require.Contains(t, p.err.String(), "is not passed on: operation not permitted")
	require.Contains(t, strings.ReplaceAll(p.err.String(), pid, "PID"), "process PID (sleep) works on without the lock")
	require.Contains(t, p.err.String(), "let sudo run wllock")
}
