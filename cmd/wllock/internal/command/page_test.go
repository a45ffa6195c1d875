//go:build linux

package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// pageCommand is how wllock is run by a shell, a crontab, a unit of systemd or a Dockerfile. A synopsis has brackets.
	pageCommand = regexp.MustCompile(`(?m)^(?:\$ |\* \* \* \* \*  |ExecStart=/usr/local/bin/|ENTRYPOINT \[")?(wllock(?:"| [a-z])[^\[\n]*)\n`)
	pageBlock   = regexp.MustCompile("(?ms)^```\n(.*?)^```$")
	pageCodes   = map[string]int{"wllock run report daily": 3, "wllock run -n report": notAcquired, "wllock doctor": wrong}
	// varying is what differs between two runs: processes, users, numbers, times and the width of columns.
	varying = regexp.MustCompile(`-[a-z2-7]{10}\b|by=\S+|\d[\d.:TZ]*([µm]?s\b)?| +`)
)

// TestCommandsOfThePage runs each command of docs/cli.md as printed, but for the programs and addresses that are not here. What is printed
// below one, it prints, too. Dots are for what was left out.
func TestCommandsOfThePage(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	s.Do("ACL", "SETUSER", "orders", "on", ">hunter2", "~cart:*", "~wllock:shop:*", "&wllock:shop:*", "+@all")
	dir := t.TempDir()
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(dir, "wllock")))
	here := strings.NewReplacer(`", "`, " ", `--"]`, "-- true", "/usr/local/bin/report", "true", "/usr/local/bin/mailer", "true", "./deploy.sh", "true",
		"/usr/local/share/man/man1/wllock.1", filepath.Join(dir, "man"), "/etc/bash_completion.d/wllock", filepath.Join(dir, "completion"),
		"...@127.0.0.1:6379", "hunter2@"+s.Addr, `since noon"`, `since noon" --yes`)
	_ = os.Getenv("PAGES_SUM") // changes with the page: see the Makefile
	text, err := os.ReadFile("../../../../docs/cli.md")
	require.NoError(t, err)
	found := 0
	for _, block := range pageBlock.FindAllStringSubmatch(string(text), -1) {
		at := pageCommand.FindAllStringSubmatchIndex(block[1], -1)
		for i, m := range at {
			found++
			line, end := block[1][m[2]:m[3]], len(block[1])
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			if strings.HasPrefix(line, "wllock run -n report") {
				start(t, append(env, "WLLOCK_INSTANCE=web-1-pid4711-report.sh"), "run", "report", "daily", "--", "sh", "-c", "echo in; sleep 60").says("in")
				start(t, append(env, "WLLOCK_INSTANCE=web-2"), "run", "report", "daily", "--", "true")
				awaitWaiters(t, env, "report", "daily", 1)
			}
			p := command(t, append(env, "PATH="+dir+":"+os.Getenv("PATH")))
			p.Stderr, p.Dir = p.Stdout, dir
			code, want, printed := p.by("/bin/sh", "-c", here.Replace(line)).ends(), 0, p.out.String()
			for prefix, code := range pageCodes {
				if strings.HasPrefix(line, prefix) {
					want = code
				}
			}
			require.Equal(t, want, code, "%s: %s", line, printed)
			if strings.Contains(block[1], "$ ") {
				require.Regexp(t, likeness(block[1][m[1]:end]), varying.ReplaceAllString(printed, "·"), line)
			}
		}
	}
	require.Equal(t, 15, found)
}

// likeness finds a printed text in another run's. The terminal's question is not asked here.
func likeness(printed string) string {
	var lines []string
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "End this lease?") {
			lines = append(lines, strings.ReplaceAll(regexp.QuoteMeta(varying.ReplaceAllString(strings.ReplaceAll(line, "...", "\x00"), "·")), "\x00", ".*"))
		}
	}
	return "(?s)" + strings.Join(lines, "")
}
