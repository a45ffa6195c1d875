//go:build linux

package command

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wllock/wllock/internal/redistest"
)

// terminal is a wllock on a terminal of its own.
type terminal struct {
	*program
	keys   *os.File // our end
	screen *os.File // its end, kept open
	before *unix.Termios
}

func onTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	return command(t, env, args...).onTerminal()
}

func (p *program) onTerminal() *terminal {
	t := p.t
	t.Helper()
	keys, screen, err := pty.Open()
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(keys, &pty.Winsize{Rows: 12, Cols: 100}))
	x := &terminal{program: p, keys: keys, screen: screen}
	x.before = x.mode()
	x.Stdin, x.Stdout, x.Stderr = screen, screen, screen
	x.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, x.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&x.out, keys)
	}()
	t.Cleanup(func() {
		if x.ProcessState == nil {
			_ = x.Process.Kill()
			_ = x.Wait()
		}
		_ = screen.Close()
		_ = keys.Close()
		<-read
	})
	return x
}

func (x *terminal) mode() *unix.Termios {
	mode, err := unix.IoctlGetTermios(int(x.screen.Fd()), unix.TCGETS)
	require.NoError(x.t, err)
	return mode
}

func (x *terminal) types(text string) {
	x.t.Helper()
	_, err := x.keys.WriteString(text)
	require.NoError(x.t, err)
}

// lines are those of the last whole screen.
func (x *terminal) lines() []string {
	all := strings.Split(x.out.String(), "\x1b[H")
	return strings.Split(strings.ReplaceAll(all[len(all)-1], "\x1b[K", ""), "\r\n")
}

func fill(s *redistest.Server, n int) {
	s.Do("EVAL", `for i = 1, ARGV[1] do redis.call('SET', 'shop:product:' .. i, 'wllock:x:h-aaaaaaaaaa:1:web-' .. i .. '-aaaaaaaaaa:5000:1700000000000000' .. 1000 + i, 'PX', 60000) end`, 0, n)
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*terminal){
		"q":       func(x *terminal) { x.types("q") },
		"ctrl-c":  func(x *terminal) { x.types("\x03") },
		"SIGTERM": func(x *terminal) { require.NoError(x.t, x.Process.Signal(syscall.SIGTERM)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := redis(t)
			fill(s, 50)
			holder := start(t, env, "run", "cart", "7", "--", "sh", "-c", "echo in; sleep 60").says("in")
			start(t, env, "run", "cart", "7", "--", "true")
			awaitWaiters(t, env, "cart", "7", 1)
			x := onTerminal(t, append(env, "NO_COLOR="), "top", "--interval", "100ms")
			x.says("51 held, 1 waiting")
			x.says("\x1b[33m      1") // in colour, and the first
			require.Eventually(t, func() bool { return len(x.lines()) == 12 && strings.Contains(x.lines()[3], "  cart:7") }, patience, time.Millisecond)
			require.NoError(t, pty.Setsize(x.keys, &pty.Winsize{Rows: 30, Cols: 60}))
			require.Eventually(t, func() bool { return len(x.lines()) == 30 && strings.Contains(x.lines()[4], "…") }, patience, time.Millisecond)
			require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
			x.says("50 held, 0 waiting")
			end(x)
			require.Zero(t, x.ends())
			x.says("\x1b[?1049l")
			require.Equal(t, x.before, x.mode())
		})
	}
}

func TestTopWithoutColours(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	fill(s, 3)
	for name, x := range map[string]*terminal{
		"flag":     onTerminal(t, append(env, "NO_COLOR="), "top", "--no-color", "--filter", "[12]$"),
		"variable": onTerminal(t, append(env, "NO_COLOR=1"), "top", "--filter", "[12]$"),
	} {
		x.says("2 held, 0 waiting")
		x.types("q")
		require.Zero(t, x.ends(), name)
		require.NotRegexp(t, "\x1b\\[[0-9]*m", x.out.String(), name)
	}
}

func TestTopShowsThatTheBackendIsAway(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	fill(s, 3)
	x := onTerminal(t, env, "top", "--interval", "100ms").awaits("3 held")
	s.Kill()
	x.awaits("unavailable")
	s.Restart()
	x.awaits("0 held")
}

func (x *terminal) awaits(text string) *terminal {
	x.t.Helper()
	require.Eventually(x.t, func() bool { return strings.Contains(strings.Join(x.lines(), "\n"), text) }, patience, time.Millisecond, "%s", text)
	return x
}

func TestBreakAsks(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	holder := start(t, env, "run", "n", "1", "--", "sh", "-c", "echo in; sleep 60").says("in")
	_, err := exits(t, usage, env, "break", "n", "1", "--reason", "stuck")
	require.Contains(t, err, "--yes")
	x := onTerminal(t, env, "break", "n", "1", "--reason", "stuck")
	x.says("Type yes")
	x.types("no\n")
	require.Equal(t, no, x.ends())
	exits(t, notAcquired, env, "run", "-n", "n", "1", "--", "true")
	x = onTerminal(t, env, "break", "n", "1", "--reason", "stuck")
	x.says("Type yes")
	x.types("yes\n")
	require.Zero(t, x.ends())
	x.says("lease ended by force")
	require.Equal(t, lost, holder.ends())
}
