//go:build linux

package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/keyless"
)

// From a log line's hash to the lock: who, ls, top and break print hashes and take them, with the secret of the services.
func TestHashedKeys(t *testing.T) {
	t.Parallel()
	const full = "shop:account:#645fc47328abdeed" // of 4711
	secret := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(secret, []byte("sixteen bytes or more\n"), 0o600))
	without := file(t)
	env := append(without, "WLLOCK_KEY_SECRET_FILE="+secret)
	exits(t, 0, env, "run", "account", "1", "--", "true") // which makes the file
	out, err := exits(t, no, env, "who", full)
	require.Contains(t, err, "no lock in use has the key or the hash "+full)
	require.Empty(t, out)

	start(t, env, "run", "account", "4711", "--", "sh", "-c", "echo in $WLLOCK_LOCK_KEY; sleep 60").says("in shop:account:4711")
	seen := func(args ...string) (code int, all string) {
		t.Helper()
		code, out, err := run(t, env, args...)
		require.NotContains(t, out+err, "4711", args)
		return code, out + err
	}
	for _, args := range [][]string{
		{"who", full}, {"who", "account", "#645fc47328abdeed"}, {"who", "account", "4711"}, {"who", "--json", full},
		{"ls"}, {"top", "--filter", "account:#645f"},
	} {
		code, all := seen(args...)
		require.Zero(t, code, all)
		require.Contains(t, all, full, args)
	}
	code, all := seen("run", "-n", "account", "4711", "--", "true")
	require.Equal(t, notAcquired, code, all)
	require.Contains(t, all, `acquire "`+full+`": lock is held`)
	_, out, _ = run(t, env, "ls", "--show-keys")
	require.Contains(t, out, "shop:account:4711 ")

	out, err = exits(t, no, without, "who", full)
	require.Contains(t, out, "is free")
	require.Contains(t, err, "may be a hash: to find its lock, set WLLOCK_KEY_SECRET or WLLOCK_KEY_SECRET_FILE")
	_, err = exits(t, usage, append(without, "WLLOCK_KEY_SECRET=short"), "ls")
	require.Contains(t, err, "WLLOCK_KEY_SECRET has less than 16 bytes")

	// A key that looks like the hash of another is nobody's mistake to pay for.
	start(t, env, "run", "account", "#645fc47328abdeed", "--", "sh", "-c", "echo in; sleep 60").says("in")
	code, all = seen("break", full, "--yes", "--reason", "hangs")
	require.Equal(t, usage, code)
	require.Contains(t, all, "2 locks have the key or the hash "+full)
	_, out, _ = run(t, env, "who", "account", "4711", "--show-keys")
	require.Contains(t, out, "shop:account:4711 is held")
}

// break takes the hash of a log line, and its own line has it, too.
func TestBreakByHash(t *testing.T) {
	t.Parallel()
	env := append(file(t), "WLLOCK_KEY_SECRET=sixteen bytes or more")
	holder := start(t, env, "run", "account", "4711", "--", "sh", "-c", "echo in; sleep 60").says("in")
	out, err := exits(t, 0, env, "break", "shop:account:#645fc47328abdeed", "--yes", "--reason", "hangs")
	require.Regexp(t, regexp.QuoteMeta(`msg="lease ended by force" key=shop:account:#645fc47328abdeed `), out)
	require.False(t, strings.Contains(out+err, "4711"))
	require.Equal(t, lost, holder.ends())
	require.NotContains(t, holder.err.String(), "4711")
}

// Others' keys among those of the locks may be account numbers as well.
func TestDoctorHashesOthersKeys(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	s.Do("SET", "shop:account:4711", "cached")
	_, out, err := run(t, append(env, "WLLOCK_KEY_SECRET=sixteen bytes or more"), "doctor")
	require.Contains(t, out, `"shop:account:#645fc47328abdeed", which never expires`)
	require.NotContains(t, out+err, "4711")
}

// The locks that doctor tries are its own, so it says all that the server says, also where services hash keys.
func TestDoctorSaysWhatTheServerSays(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	s.Do("ACL", "SETUSER", "u", "on", ">hunter2", "~shop:*", "~wllock:shop:*", "&wllock:shop:*", "+@all", "-evalsha", "-eval")
	_, out, err := run(t, append(env, "WLLOCK_KEY_SECRET=sixteen bytes or more"), "doctor", "redis://u:hunter2@"+s.Addr)
	require.Contains(t, out, "NOPERM", err)
	require.NotContains(t, out+err, keyless.Redacted)
}
