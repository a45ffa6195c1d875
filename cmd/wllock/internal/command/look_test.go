//go:build linux

package command

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/cmd/wllock/internal/doctor"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

func TestWho(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	env = append(env, "WLLOCK_INSTANCE=web-1")
	out, _ := exits(t, no, env, "who", "product", "1")
	require.Equal(t, "shop:product:1 is free\n  waiting  0\n", out)

	start(t, env, "run", "product", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	start(t, append(env, "WLLOCK_INSTANCE=web-2"), "run", "--shared", "product", "1", "--", "true")
	awaitWaiters(t, env, "product", "1", 1)
	out, _ = exits(t, 0, env, "who", "shop:product:1")
	require.Regexp(t, `^shop:product:1 is held, exclusive
  holder   web-1-[a-z2-7]{10}, on web-1
  since    20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z, [0-9.]+m?s ago
  lease    [0-9.]+m?s left
  fence    \d{19} to \d{19}
  waiting  1
           1\. web-2-[a-z2-7]{10}, on web-2, shared, for [0-9.]+m?s
$`, out)

	out, _ = exits(t, 0, env, "who", "--json", "product", "1")
	var lock show.Lock
	require.NoError(t, json.Unmarshal([]byte(out), &lock))
	require.Equal(t, "web-1", lock.Holders[0].Host)
	require.Equal(t, "web-2", lock.Waiters[0].Host)
	require.Len(t, lock.Fence, 19)
	for _, args := range [][]string{{"who"}, {"who", "a:b"}, {"who", "a", "b", "c"}, {"who", "a:b:"}, {"who", "a b:c:d"}, {"who", "", "x"}} {
		exits(t, usage, env, args...)
	}
	_, err := exits(t, usage, append(env, "WLLOCK_SYSTEM_NAME="), "who", "a", "b")
	require.Contains(t, err, "--system")
}

// A new connection, and a script that the server does not have yet: all that is sent is counted.
func TestWhoCostsFewCommands(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	fill(s, 1)
	s.Do("SCRIPT", "FLUSH")
	sent := 0
	for _, line := range monitored(t, s.Addr, func() { exits(t, 0, env, "who", "product", "1") }) {
		if !strings.Contains(line, " lua]") {
			t.Log(line[:min(len(line), 100)])
			sent++
		}
	}
	require.LessOrEqual(t, sent, 5)
}

func TestLs(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	fill(s, 1200)
	s.Do("SET", "shop:\x1b[2Jx:1", "foreign", "PX", "60000")
	s.Do("SET", "other:n:1", "foreign", "PX", "60000")
	out, _ := exits(t, 0, env, "ls")
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
		exits(t, usage, env, args...)
	}
}

func TestBreak(t *testing.T) {
	testscope.Long(t, "takes 3 s")
	t.Parallel()
	_, env := redis(t)
	_, err := exits(t, no, env, "break", "n", "1", "--yes", "--reason", "stuck")
	require.Contains(t, err, "is free")
	for _, args := range [][]string{{"break", "n", "1", "--yes"}, {"break", "n", "1", "--yes", "--reason", " "}} {
		exits(t, usage, env, args...)
	}
	holder := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo $WLLOCK_LOCK_FENCE in; sleep 60").says("in")
	next := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo $WLLOCK_LOCK_FENCE in; sleep 60")
	awaitWaiters(t, env, "n", "1", 1)
	exits(t, usage, env, "break", "n", "1", "--yes", "--reason", strings.Repeat("x", 300))
	out, err := exits(t, 0, env, "break", "n", "1", "--yes", "--reason", "stuck since noon", "--by", "ops")
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
	out, _ := exits(t, 0, nil, "man")
	require.Contains(t, out, ".TH WLLOCK 1")
	for _, c := range []string{"run", "who", "ls", "top", "break"} {
		require.Contains(t, out, ".SS wllock "+c)
	}
	out, _ = exits(t, 0, nil, "--version")
	require.Contains(t, out, "go1.")
	out, _ = exits(t, 0, nil, "completion", "bash")
	require.Contains(t, out, "wllock")
	out, _ = exits(t, 0, nil, completing)
	require.Contains(t, out, "who")
	exits(t, usage, nil, "who", "a", "b")
}

// Help breaks its lines between words, also those of the descriptions.
func TestHelpIsAsWideAsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"help", "run"}, {"help", "top"}, {"run", "--help"}} {
		out, _ := exits(t, 0, nil, args...)
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
	_, err := exits(t, unavailable, env, "ls")
	require.Contains(t, err, doctor.ListRights)
	_, found := examined(t, env)
	require.Contains(t, found["lock keys"], "ok: not looked at: ")
	require.Contains(t, found["lock keys"], "ACL SETUSER shop "+doctor.ListRights)
	page, fault := os.ReadFile("../../../../docs/redis.md")
	require.NoError(t, fault)
	require.Contains(t, string(page), "`"+doctor.ListRights+"`")

	s.Do(append([]any{"ACL", "SETUSER", "shop"}, anys(strings.Fields(doctor.ListRights))...)...)
	for _, args := range [][]string{{"ls"}, {"top", "--once"}} {
		exits(t, 0, env, args...)
	}
	_, found = examined(t, env)
	require.Contains(t, found["lock keys"], "ok: no value of others")
}

// A hosted Redis refuses the commands of operators. Ours work there, and the doctor says what it has not seen.
func TestCommandsAtAHostedRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	env := shop("redis://hosted:change-me@" + s.Addr)
	s.Hosted("shop", "+info")
	for subject, what := range finds(t, 0, append(env, "WLLOCK_LEASE_TTL=10s")) {
		require.Regexp(t, "^ok: ", what, subject)
	}
	exits(t, 0, env, "run", "cron", "report", "--", "true")
	holder := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	for _, args := range [][]string{{"who", "n", "1"}, {"ls"}, {"top", "--once"}, {"jobs"}, {"break", "n", "1", "--yes", "--reason", "stuck"}} {
		exits(t, 0, env, args...)
	}
	require.Equal(t, lost, holder.ends())

	s.Hosted("shop")
	found := finds(t, no, append(env, "WLLOCK_LEASE_TTL=10s"))
	require.Contains(t, found["server"], "warning: the user may not use INFO")
}

func anys(texts []string) (all []any) {
	for _, t := range texts {
		all = append(all, t)
	}
	return all
}

// monitored returns the commands of clients that a Redis server gets meanwhile.
func monitored(t *testing.T, addr string, f func()) (log []string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan())
	f()
	require.NotEmpty(t, testproc.Ask(addr, []byte("ECHO end-of-log\r\n")))
	for lines.Scan() && !strings.Contains(lines.Text(), "end-of-log") {
		log = append(log, lines.Text())
	}
	return log
}
