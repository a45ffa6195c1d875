//go:build linux

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A script without #! is run by the shell, with its arguments, as under flock and env.
func TestRunHasTheShellRunWhatTheSystemTakesForNoProgram(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "a script")
	require.NoError(t, os.WriteFile(script, []byte("echo \"$0 $1 $2 $#\"; exit 7\n"), 0o700))
	want := script + " one two words 2\n"
	for name, through := range map[string][]string{"at once": nil, "by the stub": {"--ignore-signal=URG"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := under(t, through, os.Args[0], "run", "n", "1", "--", script, "one", "two words")
			require.Equal(t, 7, p.ends(), p.err.String())
			require.Equal(t, want, p.out.String())
		})
	}
}

// under starts a program, which may be wllock, that env(1) starts with some options.
func under(t *testing.T, options []string, args ...string) *program {
	t.Helper()
	env, err := exec.LookPath("env")
	require.NoError(t, err)
	return command(t, file(t)).by(env, append(slices.Clone(options), args...)...)
}

// What was ignored or blocked when wllock began is so for its command, as under flock, to the bit. Each bit of a signal's number makes a set of
// those that are ignored. The others are blocked.
func TestRunStartsItsCommandAsItWasStarted(t *testing.T) {
	t.Parallel()
	begins := regexp.MustCompile(`(?m)^Sig(Blk|Ign):.*$`)
	for _, mask := range []int{0, 1, 2, 4, 8, 16, 32, 64, 127} {
		numbers := map[bool][]string{}
		for n := 1; n <= 64; n++ {
			if n != 9 && n != 19 && n != 32 && n != 33 { // KILL, STOP, and two that C keeps from env
				numbers[n&mask != 0] = append(numbers[n&mask != 0], strconv.Itoa(n))
			}
		}
		t.Run(strconv.Itoa(mask), func(t *testing.T) {
			t.Parallel()
			options := []string{"--ignore-signal=" + strings.Join(numbers[true], ","), "--block-signal=" + strings.Join(numbers[false], ",")}
			want := under(t, options, "flock", filepath.Join(t.TempDir(), "lock"), "cat", "/proc/self/status")
			require.Zero(t, want.ends(), want.err.String())
			got := under(t, options, os.Args[0], "run", "n", "1", "--", "cat", "/proc/self/status")
			require.Zero(t, got.ends(), got.err.String())
			require.Equal(t, begins.FindAllString(want.out.String(), -1), begins.FindAllString(got.out.String(), -1))
		})
	}
}

// What is ignored ends neither the wait for a lock nor, without a command, the hold.
func TestRunIgnoresWhatItWasToldTo(t *testing.T) {
	t.Parallel()
	p := under(t, []string{"--ignore-signal=TERM"}, os.Args[0], "run", "n", "1").says("is held")
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^SigIgn:\s*([0-9a-f]+)$`).FindStringSubmatch(string(status))
	require.Len(t, found, 2)
	ignored, err := strconv.ParseUint(found[1], 16, 64)
	require.NoError(t, err)
	require.NotZero(t, ignored&(1<<(syscall.SIGTERM-1)))
	require.Zero(t, ignored&(1<<(syscall.SIGHUP-1)|1<<(syscall.SIGINT-1)), "the others are not")
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Equal(t, -int(syscall.SIGHUP), p.ends(), p.err.String())
}
