//go:build linux

package command

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/internal/identity"
)

// The first two have the permits, and the third does not get one.
func TestRunWithPermits(t *testing.T) {
	t.Parallel()
	env := file(t)
	for range 2 {
		start(t, env, "run", "--permits", "2", "n", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	}
	exits(t, notAcquired, env, "run", "--permits", "2", "-n", "n", "1", "--", "true")
	_, out, _ := run(t, env, "ls")
	require.Regexp(t, `shop:n:1  permits `, out)
	for _, args := range [][]string{{"--permits", "0"}, {"--permits", "2", "--shared"}} {
		exits(t, usage, env, append(append([]string{"run"}, args...), "n", "1", "--", "true")...)
	}
}

// On a machine with many jobs the host alone says little.
func TestRunIsNamedByItsProcessAndCommand(t *testing.T) {
	t.Parallel()
	env := file(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	host = identity.Clean(host)
	for name, args := range map[string][]string{"-sh": {"run", "n", "key-sh", "--", "/bin/sh", "-c", "echo is held; sleep 60"}, "": {"run", "n", "key"}} {
		key := "key" + name
		p := start(t, env, args...).says("is held")
		_, out, _ := run(t, env, "who", "n", key)
		require.Regexp(t, `holder   `+host+"-pid"+strconv.Itoa(p.Process.Pid)+name+"-[a-z2-7]{10}, on "+host+"\n", out)
		_, out, _ = run(t, env, "who", "--json", "n", key)
		var lock show.Lock
		require.NoError(t, json.Unmarshal([]byte(out), &lock))
		require.Equal(t, host, lock.Holders[0].Host)
	}
	long := instanceOf("/usr/bin/" + strings.Repeat("x", 100))
	require.NoError(t, identity.Check(long))
	require.Contains(t, long, "-pid"+strconv.Itoa(os.Getpid())+"-xxx")
}

// Without a command the lock is held until Ctrl-C or SIGTERM, which is its good end; other signals end wllock as any program.
func TestRunWithoutACommandHoldsUntilASignal(t *testing.T) {
	t.Parallel()
	env := file(t)
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 0, syscall.SIGTERM: 0, syscall.SIGHUP: -1} {
		p := start(t, env, "run", "n", "1").says("shop:n:1 is held, fence ")
		_, err := exits(t, 3, env, "run", "-n", "-q", "-E", "3", "n", "1")
		require.Empty(t, err)
		require.NoError(t, p.Process.Signal(syscall.SIGWINCH))
		require.NoError(t, p.Process.Signal(signal))
		require.Equal(t, want, p.ends(), p.err.String())
		exits(t, 0, env, "run", "-n", "n", "1", "--", "true")
	}
}

// Who ends without knowing that the lock was lost finds it out by the release.
func TestRunWithoutACommandFindsALossOut(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	env = append(env, "WLLOCK_LEASE_TTL=60s") // no renewal finds it before
	p := start(t, env, "run", "n", "1").says("is held")
	s.Do("DEL", "shop:n:1")
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, lost, p.ends(), p.err.String())
	require.Contains(t, p.err.String(), "the lock was lost before its end")

	p = start(t, env, "run", "--lock-time-max", "300ms", "n", "1")
	require.Equal(t, lost, p.ends(), p.err.String())
	require.Contains(t, p.err.String(), "longer than its maximum")
}

// Who loses a lock by a Break is told by whom and why, with a command and without.
func TestRunSaysWhoBrokeItsLock(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	for name, args := range map[string][]string{
		": ending the command": {"run", "n", "1", "--", "sh", "-c", "echo is held; exec sleep 60"}, "": {"run", "n", "2"},
	} {
		t.Run(args[2], func(t *testing.T) {
			t.Parallel()
			p := start(t, env, args...).says("is held")
			exits(t, 0, env, "break", "--yes", "--by", "ops", "--reason", "it is stuck", "n", args[2])
			require.Equal(t, lost, p.ends(), p.err.String())
			require.Regexp(t, "lease lost"+name+"\nwllock: the lock was broken: .* by ops, held by .*: it is stuck\n", p.err.String())
		})
	}
}
