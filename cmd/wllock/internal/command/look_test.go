//go:build linux

package command

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/cmd/wllock/internal/doctor"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/internal/testscope"
)

func TestWho(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	env = append(env, "WLLOCK_INSTANCE=web-1")
	code, out, err := run(t, env, "who", "product", "1")
	require.Equal(t, no, code, err)
	require.Equal(t, "shop:product:1 is free\n  waiting  0\n", out)

	start(t, env, "run", "product", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	start(t, append(env, "WLLOCK_INSTANCE=web-2"), "run", "--shared", "product", "1", "--", "true")
	awaitWaiters(t, env, "product", "1", 1)
	code, out, err = run(t, env, "who", "shop:product:1")
	require.Zero(t, code, err)
	require.Regexp(t, `^shop:product:1 is held, exclusive
  holder   web-1-[a-z2-7]{10}, on web-1
  since    20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z, [0-9.]+m?s ago
  lease    [0-9.]+m?s left
  fence    \d{19} to \d{19}
  waiting  1
           1\. web-2-[a-z2-7]{10}, on web-2, shared, for [0-9.]+m?s
$`, out)

	code, out, err = run(t, env, "who", "--json", "product", "1")
	require.Zero(t, code, err)
	var lock show.Lock
	require.NoError(t, json.Unmarshal([]byte(out), &lock))
	require.Equal(t, "web-1", lock.Holders[0].Host)
	require.Equal(t, "web-2", lock.Waiters[0].Host)
	require.Len(t, lock.Fence, 19)
	for _, args := range [][]string{{"who"}, {"who", "a:b"}, {"who", "a", "b", "c"}, {"who", "a:b:"}, {"who", "a b:c:d"}, {"who", "", "x"}} {
		code, _, _ = run(t, env, args...)
		require.Equal(t, usage, code, args)
	}
	code, _, err = run(t, append(env, "WLLOCK_SYSTEM_NAME="), "who", "a", "b")
	require.Equal(t, usage, code)
	require.Contains(t, err, "--system")
}

// A new connection, and a script that the server does not have yet: all that is sent is counted.
func TestWhoCostsFewCommands(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	fill(s, 1)
	s.Do("SCRIPT", "FLUSH")
	log := monitored(t, s.Addr, func() {
		code, _, err := run(t, env, "who", "product", "1")
		require.Zero(t, code, err)
	})
	sent := 0
	for line := range strings.Lines(log) {
		if !strings.Contains(line, " lua]") {
			t.Log(line[:min(len(line), 100)])
			sent++
		}
	}
	require.LessOrEqual(t, sent, 4)
}

func TestLs(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	fill(s, 1200)
	s.Do("SET", "shop:\x1b[2Jx:1", "foreign", "PX", "60000")
	s.Do("SET", "other:n:1", "foreign", "PX", "60000")
	code, out, err := run(t, env, "ls")
	require.Zero(t, code, err)
	require.Equal(t, 1+1200+1, strings.Count(out, "\n"))
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "other:")
	require.Contains(t, out, "(not wllock)")
	_, out, _ = run(t, env, "ls", "--json", "shop:product")
	var locks []show.Lock
	require.NoError(t, json.Unmarshal([]byte(out), &locks))
	require.Len(t, locks, 1200)
	_, out, _ = run(t, env, "top", "--filter", `:12\d?$`, "--limit", "3")
	require.Equal(t, 4, strings.Count(out, "\n"))
	require.Contains(t, out, "web-12-aaaaaaaaaa")
	_, out, _ = run(t, env, "ls", "nothing")
	require.Equal(t, 1, strings.Count(out, "\n"))
	for _, args := range [][]string{{"ls", "a b"}, {"ls", "a:b c"}, {"ls", "a", "b"}, {"top", "--filter", "("}, {"top", "--interval", "1ms"}} {
		code, _, _ = run(t, env, args...)
		require.Equal(t, usage, code, args)
	}
}

func TestBreak(t *testing.T) {
	testscope.Long(t, "takes 3 s")
	t.Parallel()
	_, env := redis(t)
	code, _, err := run(t, env, "break", "n", "1", "--yes", "--reason", "stuck")
	require.Equal(t, no, code)
	require.Contains(t, err, "is free")
	for _, args := range [][]string{{"break", "n", "1", "--yes"}, {"break", "n", "1", "--yes", "--reason", " "}} {
		code, _, _ = run(t, env, args...)
		require.Equal(t, usage, code, args)
	}
	holder := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo $WLLOCK_LOCK_FENCE in; sleep 60").says("in")
	next := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo $WLLOCK_LOCK_FENCE in; sleep 60")
	awaitWaiters(t, env, "n", "1", 1)
	code, _, err = run(t, env, "break", "n", "1", "--yes", "--reason", strings.Repeat("x", 300))
	require.Equal(t, usage, code, err)
	code, out, err := run(t, env, "break", "n", "1", "--yes", "--reason", "stuck since noon", "--by", "ops")
	require.Zero(t, code, err)
	require.Regexp(t, `^time=\S+ level=WARN msg="lease ended by force" key=shop:n:1 holder=\S+ by=ops reason="stuck since noon" fence=\d+\n$`, out)
	require.Contains(t, err, "is held, exclusive")
	require.Equal(t, lost, holder.ends())
	next.says("in")
	require.Less(t, strings.Fields(holder.out.String())[0], strings.Fields(next.out.String())[0])
	_, out, _ = run(t, env, "who", "n", "1")
	require.Regexp(t, `broken   \S+ \S+ by ops, held by \S+, fence \d+: stuck since noon`, out)
}

func TestManualAndVersion(t *testing.T) {
	t.Parallel()
	code, out, err := run(t, nil, "man")
	require.Zero(t, code, err)
	require.Contains(t, out, ".TH WLLOCK 1")
	for _, c := range []string{"run", "who", "ls", "top", "break"} {
		require.Contains(t, out, ".SS wllock "+c)
	}
	code, out, _ = run(t, nil, "--version")
	require.Zero(t, code)
	require.Contains(t, out, "go1.")
	code, out, _ = run(t, nil, "completion", "bash")
	require.Zero(t, code)
	require.Contains(t, out, "wllock")
	code, out, _ = run(t, nil, completing)
	require.Zero(t, code)
	require.Contains(t, out, "who")
	code, _, _ = run(t, nil, "who", "a", "b")
	require.Equal(t, usage, code)
}

// Help breaks its lines between words, also those of the descriptions.
func TestHelpIsAsWideAsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"help", "run"}, {"help", "top"}, {"run", "--help"}} {
		code, out, err := run(t, nil, args...)
		require.Zero(t, code, err)
		for line := range strings.SplitSeq(out, "\n") {
			require.LessOrEqual(t, len(line), 80, "%v: %s", args, line)
		}
	}
}

// A user with the rights of the page for services runs jobs, and looks at locks by name. What lists take, the page, the error and the
// doctor say alike, and it is enough.
func TestTheDocumentedUserLearnsWhatListsTake(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	s.AddUser(t, "redis.md", "shop")
	env = append(env, "WLLOCK_REDIS_USERNAME=shop", "WLLOCK_REDIS_PASSWORD=change-me")
	for _, args := range [][]string{{"run", "n", "1", "--", "true"}, {"who", "shop:n:1"}} {
		code, _, err := run(t, env, args...)
		require.LessOrEqual(t, code, no, err)
	}
	code, _, err := run(t, env, "ls")
	require.Equal(t, unavailable, code)
	require.Contains(t, err, doctor.ListRights)
	_, found := examined(t, env)
	require.Contains(t, found["lock keys"], "ok: not looked at: ")
	require.Contains(t, found["lock keys"], "ACL SETUSER shop "+doctor.ListRights)
	page, fault := os.ReadFile("../../../../docs/redis.md")
	require.NoError(t, fault)
	require.Contains(t, string(page), "`"+doctor.ListRights+"`")

	s.Do(append([]any{"ACL", "SETUSER", "shop"}, anys(strings.Fields(doctor.ListRights))...)...)
	for _, args := range [][]string{{"ls"}, {"top", "--once"}} {
		code, _, err = run(t, env, args...)
		require.Zero(t, code, err)
	}
	_, found = examined(t, env)
	require.Contains(t, found["lock keys"], "ok: no value of others")
}

func anys(texts []string) (all []any) {
	for _, t := range texts {
		all = append(all, t)
	}
	return all
}
