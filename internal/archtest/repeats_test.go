package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A repeat clears a test over a server alone, and never one that drew from a seed: with another seed it is another test.
func TestRepeatsThatDoNotCount(t *testing.T) {
	const servers, alone = "github.com/wllock/wllock/distributed/redislock", "github.com/wllock/wllock/local"
	event := func(action, pkg, test, output string) string {
		return `{"Time":"2026-11-28T12:00:00Z","Action":"` + action + `","Package":"` + pkg + `","Test":"` + test + `","Output":"` + output +
			`","Elapsed":0.1}` + "\n"
	}
	repeated := func(pkg, test, output string) string {
		return event("output", pkg, test, output) + event("fail", pkg, test, "") + event("pass", pkg, test, "")
	}
	for _, one := range []struct {
		events, says string
		red          bool
	}{
		{repeated(servers, "TestA", "late"), "flaky, passed when repeated: " + servers + " TestA\n", false},
		{repeated(servers, "TestA/b", "    x_test.go:1: WLLOCK_SEED=7\\n"), "failed with a seed, which the output of its first run has: " + servers + " TestA/b\n", true},
		{repeated(alone, "TestA", "late"), "failed, and starts no server: " + alone + " TestA\n", true},
		{event("output", servers, "TestB", "WLLOCK_SEED=7") + event("pass", servers, "TestB", ""), "", false},
	} {
		file := filepath.Join(t.TempDir(), "events.json")
		require.NoError(t, os.WriteFile(file, []byte(one.events), 0o600))
		cmd := exec.CommandContext(t.Context(), "tools/results", "repeats")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOTESTSUM_JSONFILE="+file)
		out, err := cmd.Output()
		require.Equal(t, one.says, string(out))
		require.Equal(t, one.red, err != nil)
	}
}
