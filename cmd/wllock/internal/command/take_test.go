package command

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
)

// take takes a lock and returns its token.
func take(t *testing.T, env []string, args ...string) string {
	t.Helper()
	out, err := exits(t, 0, env, append([]string{"take", "--for", "1h"}, args...)...)
	require.Empty(t, err)
	require.Regexp(t, `^wllock1\.[\w-]+\.[\w-]{32}\n$`, out)
	return strings.TrimSpace(out)
}

// One step takes the lock, and another one goes on with it.
func TestTakeAndRunByTheToken(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	before, _ := exits(t, 0, env, "run", "deploy", "web:1", "--", "sh", "-c", "echo $WLLOCK_LOCK_FENCE")
	token := take(t, env, "deploy", "web:1")
	_, err := exits(t, notAcquired, env, "run", "-n", "deploy", "web:1", "--", "true")
	require.Contains(t, err, `held by "a detached lock"`)
	out, _ := exits(t, 0, env, "who", "deploy", "web:1")
	require.Regexp(t, `holder +detached, until its token is used\n`, out)
	require.Regexp(t, `lease +59m\d\ds left\n`, out)
	out, _ = exits(t, 0, env, "who", "--json", "deploy", "web:1")
	require.Contains(t, out, `"detached": true`)
	out, _ = exits(t, 0, env, "ls")
	require.Regexp(t, `shop:deploy:web:1  exclusive  \S+ +59m\d\ds +0 +detached +\d`, out)
	require.NotContains(t, out, "detached~")

	elsewhere := []string{env[0], "WLLOCK_SYSTEM_NAME=other", env[2]} // the token names the system
	p := command(t, elsewhere, "run", "--token", "-", "--", "sh", "-c", "echo $WLLOCK_LOCK_KEY $WLLOCK_LOCK_FENCE; cat; exit 5")
	p.Stdin = strings.NewReader(token + "\nthe rest is the command's")
	require.NoError(t, p.Start())
	require.Equal(t, 5, p.ends(), p.err.String())
	found := strings.Fields(p.out.String())
	require.Equal(t, []string{"shop:deploy:web:1", "the", "rest", "is", "the", "command's"}, append(found[:1:1], found[2:]...))
	require.Greater(t, found[1], strings.TrimSpace(before), "the fence grows")
	_, err = exits(t, lost, env, "run", "--token", token, "--", "true")
	require.Contains(t, err, "the token was used before")
	exits(t, 0, env, "run", "-n", "deploy", "web:1", "--", "true")
}

func TestGive(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	token := take(t, env, "n", "1")
	exits(t, notAcquired, env, "take", "-n", "--for", "1m", "n", "1")
	out, err := exits(t, 0, env, "give", token)
	require.Empty(t, out+err)
	_, err = exits(t, no, env, "give", token)
	require.Contains(t, err, "the token was used before")
	again := take(t, env, "-n", "n", "1")
	p := command(t, env, "give", "-")
	p.Stdin = strings.NewReader(again)
	require.NoError(t, p.Start())
	require.Zero(t, p.ends(), p.err.String())
	exits(t, 0, env, "run", "-n", "n", "1", "--", "true")
}

// A token that no program reads is given back, and none is sent nowhere.
func TestTakeWithoutAReader(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	for _, script := range []string{`"$0" take --for 1h n 1 | true`, `"$0" take --for 1h n 1 >/dev/null`, `"$0" take --for 1h n 1 >&-`} {
		p := command(t, env).by("/bin/sh", "-c", script, os.Args[0])
		p.ends()
		require.Regexp(t, `the lock was released|it would be lost`, p.err.String(), script)
		exits(t, 0, env, "run", "-n", "n", "1", "--", "true")
	}
}

func TestWrongTakesAndTokens(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	token := take(t, env, "n", "1")
	for name, test := range map[string]struct {
		code int
		says string
		args []string
	}{
		"no time":               {usage, "--for 10m", []string{"take", "n", "2"}},
		"too short":             {usage, "want 50ms to", []string{"take", "--for", "1us", "n", "2"}},
		"no key":                {usage, "want NAME KEY", []string{"take", "--for", "1m", "n"}},
		"a command":             {usage, "want NAME KEY", []string{"take", "--for", "1m", "n", "2", "--", "true"}},
		"no token":              {usage, "want TOKEN", []string{"give"}},
		"garbage":               {usage, "want one of Lock.Detach", []string{"give", "n"}},
		"damaged":               {usage, "damaged", []string{"run", "--token", token[:len(token)-1], "--", "true"}},
		"a key as well":         {usage, "exclude each other", []string{"run", "--token", token, "n", "1", "--", "true"}},
		"waits":                 {usage, "exclude each other", []string{"run", "--token", token, "-w", "1s", "--", "true"}},
		"nothing to run":        {usage, "NAME KEY -- COMMAND", []string{"run", "--token", token, "--"}},
		"nothing to read":       {usage, "reading the token", []string{"give", "-"}},
		"a backend that cannot": {unavailable, "cannot detach", []string{"--backend", "memcached://" + dbtest.Memcached(t).Addr + "?unfenced=true", "take", "--for", "1m", "n", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := exits(t, test.code, env, test.args...)
			require.Contains(t, err, test.says)
			require.NotContains(t, err, token[len(token)-20:])
		})
	}
	exits(t, 0, env, "give", token)
}
