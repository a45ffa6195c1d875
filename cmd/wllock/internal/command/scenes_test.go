//go:build linux

package command

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A step of a scene waits for a text and then types; an empty text to type is the last one.
type step struct{ sees, types string }

// Scenes of terminals. "$@" is what the command is run by.
var scenes = map[string]struct {
	script string
	steps  []step
	never  string
}{
	"a pager reads keys": {
		`"$@" sh -c 'echo in; sleep 0.3' | sh -c 'read l; echo "$l"; read k </dev/tty; echo "key $k"'`, []step{{"in", "x\n"}, {"key x", ""}}, "",
	},
	"a pager ends first": {
		`"$@" sh -c 'while echo in; do :; done' | head -n 1; echo behind`, []step{{"behind", ""}}, "",
	},
	"in the background": {
		`exec 3< <("$@" sh -c 'echo in; sleep 0.3'); read l <&3; echo "$l"; read a; echo "read $a"; cat <&3; echo end`, []step{{"in", "hi\n"}, {"read hi", ""}, {"end", ""}}, "",
	},
	"Ctrl-C ends a loop": {
		`for i in 1 2 3; do echo "round $i"; "$@" sh -c 'echo in; sleep 60'; done; echo all done`, []step{{"in", "\x03"}}, "round 2",
	},
	"Ctrl-C comes once": {
		`"$@" bash -c 'trap "echo told" INT; echo in; sleep 1 & wait; wait; wait; echo out'`, []step{{"in", "\x03"}, {"told", ""}, {"out", ""}}, "told\r\ntold",
	},
	"a password": {
		`"$@" bash -c 'read -r -s -p "word: " p; echo; echo "<$p>"'`, []step{{"word: ", "secret\n"}, {"<secret>", ""}}, "secret\r\n",
	},
	"an editor's keys": {
		`"$@" sh -c 'stty raw -echo; echo in; dd bs=1 count=3 2>/dev/null | od -An -c; stty sane'`, []step{{"in", "\x03\x1aq"}, {"003 032   q", ""}}, "",
	},
	"its output is taken": {
		`x=$("$@" sh -c 'echo a; tty </dev/tty >/dev/null && echo b'); echo "<$x>"`, []step{{"<a", ""}, {"b>", ""}}, "",
	},
	"Ctrl-Z and fg": {
		`set -m; "$@" sh -c 'echo in; read a; echo "read $a"'; echo "stopped $?"; fg >/dev/null; echo end`,
		[]step{{"in", "\x1a"}, {"stopped 14", "hi\n"}, {"read hi", ""}, {"end", ""}}, "",
	},
	"a shell with jobs": {
		`"$@" bash --norc -i 2>&1; echo behind; read a; echo "read $a"`,
		[]step{{"bash-", "exit 3\n"}, {"behind", "hi\n"}, {"read hi", ""}}, "",
	},
}

// The terminal is not wllock's: all goes as without it, and as with flock.
func TestRunIsQuietOnATerminal(t *testing.T) {
	t.Parallel()
	for name, scene := range scenes {
		for by, wrapper := range map[string]func(t *testing.T) []string{
			"plain":  func(*testing.T) []string { return []string{"env"} },
			"flock":  func(t *testing.T) []string { return []string{"flock", filepath.Join(t.TempDir(), "lock")} },
			"wllock": func(*testing.T) []string { return []string{os.Args[0], "run", "n", "1", "--"} },
		} {
			if by == "flock" && name == "Ctrl-C comes once" {
				continue // it dies, and its command goes on
			}
			t.Run(name+"/"+by, func(t *testing.T) {
				t.Parallel()
				p := command(t, append(file(t), "WLLOCK_LEASE_TTL=60s"))
				p.Path, p.Args = "/bin/bash", append([]string{"bash", "-c", scene.script, "bash"}, wrapper(t)...)
				x := p.onTerminal()
				for _, s := range scene.steps {
					x.says(s.sees)
					x.types(s.types)
				}
				if strings.Contains(name, "loop") { // one in a hundred is not seen by any program here, also without wllock: again, as a person would
					again := time.AfterFunc(time.Second, func() { _, _ = x.keys.WriteString("\x03") })
					defer again.Stop()
				}
				code := x.ends()
				if strings.Contains(name, "loop") {
					require.Equal(t, -int(syscall.SIGINT), code)
				} else {
					require.Zero(t, code)
				}
				if scene.never != "" {
					require.NotContains(t, x.out.String(), scene.never)
				}
				require.NotContains(t, x.out.String(), "wllock:")
			})
		}
	}
}
