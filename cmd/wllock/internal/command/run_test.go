//go:build linux

package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func redis(t *testing.T) (*redistest.Server, []string) {
	s := redistest.Start(t)
	return s, shop("redis://" + s.Addr)
}

func TestRunExitsAsTheCommand(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	locked := filepath.Join(t.TempDir(), "noexec")
	require.NoError(t, os.WriteFile(locked, []byte("#!/bin/sh\n"), 0o600))
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("\x7fELF but no program"), 0o700))
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"success":           {[]string{"run", "n", "1", "--", "true"}, 0, ""},
		"its own code":      {[]string{"run", "n", "2", "--", "sh", "-c", "exit 42"}, 42, ""},
		"a signal":          {[]string{"run", "n", "3", "--", "sh", "-c", "kill -KILL $$"}, -9, ""},
		"missing":           {[]string{"run", "n", "4", "--", "no-such-program"}, 127, "not found"},
		"missing, by path":  {[]string{"run", "n", "4", "--", "/no/such/program"}, 127, "no such file"},
		"not executable":    {[]string{"run", "n", "5", "--", locked}, 126, "permission denied"},
		"no program":        {[]string{"run", "n", "6", "--", garbage}, 127, "not found"}, // says the shell
		"no command":        {[]string{"run", "n", "7", "--"}, 64, "NAME KEY -- COMMAND"},
		"no dashes":         {[]string{"run", "n", "7", "true"}, 64, "NAME KEY -- COMMAND"},
		"no key":            {[]string{"run", "n", "--", "true", "x"}, 64, "NAME KEY -- COMMAND"},
		"a flag of its own": {[]string{"run", "n", "8", "--", "sh", "-c", "exit $#", "-n", "-w", "--json"}, 2, ""},
		"unknown flag":      {[]string{"run", "--nowait", "n", "8", "--", "true"}, 64, "nowait"},
		"bad name":          {[]string{"run", "n:n", "8", "--", "true"}, 64, "n:n"},
		"both waits":        {[]string{"run", "-n", "-w", "1s", "n", "8", "--", "true"}, 64, "exclude"},
		"conflict code":     {[]string{"run", "-E", "256", "n", "8", "--", "true"}, 64, "0 to 255"},
		"negative":          {[]string{"run", "-w", "-1s", "n", "8", "--", "true"}, 64, "negative"},
		"shared and least":  {[]string{"run", "--shared", "--hold-at-least", "1s", "n", "8", "--", "true"}, 64, "exclude"},
		"memory":            {[]string{"--backend", "memory://", "run", "n", "8", "--", "true"}, 64, "in one process"},
		"no such backend":   {[]string{"--backend", "foo://x", "run", "n", "8", "--", "true"}, 64, "foo"},
		"bad system":        {[]string{"--system", "a:b", "run", "n", "8", "--", "true"}, 64, "a:b"},
		"backend is away":   {[]string{"--backend", "redis://:hunter2@127.0.0.1:1", "--timeout", "1s", "run", "n", "8", "--", "true"}, 69, "refused"},
		"no such word":      {[]string{"rum"}, 64, "rum"},
		"completion":        {[]string{"run", "n", "8", "--", "false", completing}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := exits(t, test.code, env, test.args...)
			require.Contains(t, err, test.says)
			require.NotContains(t, err, "hunter2")
			require.Equal(t, test.says == "", err == "", err)
		})
	}
}

// The command finds the lock in its environment, instead of what was there before, and nothing else has changed.
func TestRunTellsTheCommandItsLock(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	env = append(env, "WLLOCK_LOCK_FENCE=7", "WLLOCK_LOCK_KEY=old", "OTHER=1")
	script := `test "$(env | grep -c ^WLLOCK_LOCK_)" = 3 && test $WLLOCK_LOCK_PID = $PPID && echo "$WLLOCK_LOCK_KEY $WLLOCK_LOCK_FENCE $OTHER $WLLOCK_BACKEND"; cat`
	var last uint64
	for range 3 {
		p := command(t, env, "--backend", strings.TrimPrefix(env[0], "WLLOCK_BACKEND="), "run", "product", "10:00", "--", "sh", "-c", script)
		p.Stdin = strings.NewReader("from standard input")
		require.NoError(t, p.Start())
		require.Zero(t, p.ends(), p.err.String())
		found := regexp.MustCompile(`^shop:product:10:00 (\d+) 1 redis://127\S+\nfrom standard input$`).FindStringSubmatch(p.out.String())
		require.NotNil(t, found, p.out.String())
		fence, err := strconv.ParseUint(found[1], 10, 64)
		require.NoError(t, err)
		require.Greater(t, fence, last)
		last = fence
	}
}

func TestRunWaits(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	holder := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	_, err := exits(t, notAcquired, env, "run", "-n", "n", "1", "--", "true")
	require.Regexp(t, `held by "\S+-[a-z2-7]{10}"`, err)
	began := time.Now()
	exits(t, notAcquired, env, "run", "-w", "300ms", "n", "1", "--", "true")
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	exits(t, notAcquired, env, "run", "-w", "0s", "n", "1", "--", "true") // no wait, and not one for ever

	waiting := start(t, env, "run", "n", "1", "--", "true")
	awaitWaiters(t, env, "n", "1", 1)
	require.NoError(t, waiting.Process.Signal(syscall.SIGTERM))
	require.Equal(t, -15, waiting.ends())
	awaitWaiters(t, env, "n", "1", 0)

	next := start(t, env, "run", "n", "1", "--", "sh", "-c", "exit 5")
	awaitWaiters(t, env, "n", "1", 1)
	require.NoError(t, holder.Process.Signal(syscall.SIGINT))
	require.Equal(t, -2, holder.ends())
	require.Equal(t, 5, next.ends())
}

// awaitWaiters waits until so many instances are queued.
func awaitWaiters(t *testing.T, env []string, name, key string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, out, _ := run(t, env, "who", "--json", name, key)
		return strings.Contains(out, `"waiting": `+strconv.Itoa(n))
	}, patience, 10*time.Millisecond)
}

func TestRunShared(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	reader := start(t, env, "run", "--shared", "n", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	exits(t, 0, env, "run", "--shared", "-n", "n", "1", "--", "true")
	exits(t, notAcquired, env, "run", "-n", "n", "1", "--", "true")
	require.NoError(t, reader.Process.Signal(syscall.SIGTERM))
	require.Equal(t, -15, reader.ends())
}

func TestRunHoldsAtLeast(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	_, env := redis(t)
	began := time.Now()
	exits(t, 3, env, "run", "--hold-at-least", "2s", "n", "1", "--", "sh", "-c", "exit 3")
	code, _, _ := run(t, env, "run", "-n", "n", "1", "--", "true")
	if time.Since(began) < 2*time.Second { // else the machine is too slow to tell
		require.Equal(t, notAcquired, code)
	}
	exits(t, 0, env, "run", "-w", "30s", "n", "1", "--", "true")
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
}

// Signals reach the whole group of the command, which may act on them as it likes.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	p := start(t, env, "run", "n", "1", "--", "sh", "-c", `trap 'echo one' USR1; trap 'echo end; exit 9' TERM; echo in; while :; do sleep 0.01; done`).says("in")
	require.NoError(t, p.Process.Signal(syscall.SIGUSR1))
	p.says("one")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 9, p.ends())
	require.Contains(t, p.out.String(), "end")
}

// When the lock is lost, the command's group gets SIGTERM, and what ignores that SIGKILL.
func TestRunEndsWhatLostItsLock(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	p := start(t, env, "run", "--grace", "200ms", "n", "1", "--", "sh", "-c",
		`sh -c 'trap "" TERM; echo deaf $$ ready; while :; do sleep 0.01; done' & trap 'echo told; exit 0' TERM; wait; wait`).says("ready")
	s.Do("DEL", "shop:n:1")
	require.Equal(t, lost, p.ends(), p.err.String())
	require.Contains(t, p.out.String(), "told")
	require.Contains(t, p.err.String(), "lease lost")
	gone(t, regexp.MustCompile(`deaf (\d+)`).FindStringSubmatch(p.out.String())[1])
}

// Whoever loses a lock because the backend has gone reads what it said.
func TestRunSaysWhyItsLeaseWasNotRenewed(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	p := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo ready; exec sleep 60").says("ready")
	s.Kill()
	require.Equal(t, lost, p.ends(), p.err.String())
	require.Regexp(t, `lease lost: its last renewal, at [0-9:.]+Z, failed: redis: renew: .*refused: ending the command`, p.err.String())
}

func TestRunEndsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	exits(t, 0, append(env, "WLLOCK_LOCK_TIME_MAX=1ms"), "run", "n", "1", "--", "sleep", "0.3") // that is for services
	_, err := exits(t, lost, env, "run", "--lock-time-max", "300ms", "n", "1", "--", "sleep", "60")
	require.Contains(t, err, "longer than its maximum")
}

// The next one runs within T and a heartbeat after the holder was killed, and then its command has been killed, too.
func TestRunAfterAKill(t *testing.T) {
	testscope.Long(t, "kills processes")
	t.Parallel()
	_, env := redis(t)
	for range 3 {
		holder := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo pid $$ in; exec sleep 60").says("in")
		next := start(t, env, "run", "n", "1", "--", "true")
		awaitWaiters(t, env, "n", "1", 1)
		killed := time.Now()
		require.NoError(t, holder.Process.Kill())
		require.Zero(t, next.ends(), next.err.String())
		took := time.Since(killed)
		gone(t, regexp.MustCompile(`pid (\d+)`).FindStringSubmatch(holder.out.String())[1])
		t.Logf("taken over after %v", took)
		require.Less(t, took, 10*time.Second, "T is 1 s") // 1.2 s on an idle machine
	}
}
