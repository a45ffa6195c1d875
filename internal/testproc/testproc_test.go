package testproc

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// serving names the port on which this test binary answers lines instead of running tests.
const serving = "TESTPROC_SERVING"

func TestMain(m *testing.M) {
	if addr := os.Getenv(serving); addr != "" {
		serve(addr)
		return
	}
	goleak.VerifyTestMain(m)
}

// serve answers each line with itself.
func serve(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() { _, _ = io.Copy(conn, conn) }()
	}
}

func launchEcho(t *testing.T) *Server {
	return Launch(t, Spec{
		Name: "echo", FirstPort: 20000, LastPort: 32000,
		Command: func(s *Server) Command {
			exe, err := os.Executable()
			require.NoError(t, err)
			return Command{Path: exe, Env: []string{serving + "=" + s.Addr}}
		},
		Ready: func(s *Server) bool { return string(Ask(s.Addr, []byte("hello\n"))) == "hello\n" },
	})
}

// dial returns a function that sends a line and returns the answer, or an error after a while.
func dial(t *testing.T, addr string) func(line string) (string, error) {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r := bufio.NewReader(conn)
	return func(line string) (string, error) {
		_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			return "", err
		}
		answer, err := r.ReadString('\n')
		return strings.TrimSpace(answer), err
	}
}

func TestServerRestartsOnItsPort(t *testing.T) {
	t.Parallel()
	s := launchEcho(t)
	first := s.Pid()
	s.Kill()
	require.Nil(t, Ask(s.Addr, []byte("x\n")))
	s.Restart()
	require.NotEqual(t, first, s.Pid())
	require.Equal(t, "x\n", string(Ask(s.Addr, []byte("x\n"))))
}

func TestPausedServerAnswersLater(t *testing.T) {
	t.Parallel()
	s := launchEcho(t)
	ask := dial(t, s.Addr)
	s.Pause()
	_, err := ask("a")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	s.Resume()
	answer, err := ask("b")
	require.NoError(t, err)
	require.Equal(t, "a", answer)
}

func TestFamilyIsKilledWithItsParent(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	p, err := start(Command{Path: "/bin/sh", Args: []string{"-c", "sleep 60 & sleep 60"}, Dir: t.TempDir(), Family: true})
	require.NoError(t, err)
	var children []int
	require.Eventually(t, func() bool {
		children = childrenOf(p.cmd.Process.Pid)
		return len(children) == 2
	}, 10*time.Second, time.Millisecond)
	p.kill()
	for _, pid := range children {
		require.Eventually(t, func() bool { return !runs(pid) }, 10*time.Second, time.Millisecond)
	}
}

// runs reports whether a process exists and is not waiting to be buried.
func runs(pid int) bool {
	state, _ := status(pid)
	return state != "" && state != "Z"
}

func TestFindTakesTheNewestOfSeveral(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"14", "16", "15"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, version), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "some-server"), nil, 0o700))
	}
	path, err := Find("some-server", filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "16", "some-server"), path)
	_, err = Find("no-server", filepath.Join(dir, "*"))
	require.Error(t, err)
}

func TestProxyLosesARouteAndFindsIt(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, launchEcho(t).Addr)
	ask := dial(t, p.Addr)
	p.SetHalfOpen(true)
	_, err := ask("lost")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	p.SetHalfOpen(false)
	answer, err := ask("a")
	require.NoError(t, err)
	require.Equal(t, "a", answer, "what was dropped does not arrive later")
	p.Stall(true)
	_, err = ask("late")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	p.Stall(false)
	answer, err = ask("b")
	require.NoError(t, err)
	require.Equal(t, "late", answer, "what was held up arrives")
}

func TestProxyLosesReplies(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, launchEcho(t).Addr)
	muted := dial(t, p.Addr)
	p.SwallowReply("mute")
	_, err := muted("mute")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = muted("a")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the connection loses what follows as well")
	severed := dial(t, p.Addr)
	p.LoseReply("sever")
	_, err = severed("sever")
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is cut")
	require.Equal(t, 2, p.Swallowed())
	answer, err := dial(t, p.Addr)("a")
	require.NoError(t, err)
	require.Equal(t, "a", answer)
}

func TestProxyForwardsToAnother(t *testing.T) {
	t.Parallel()
	dead := launchEcho(t)
	p := NewProxy(t, dead.Addr)
	ask := dial(t, p.Addr)
	_, err := ask("a")
	require.NoError(t, err)
	dead.Kill()
	p.Forward(launchEcho(t).Addr)
	_, err = ask("a")
	require.Error(t, err)
	_, err = dial(t, p.Addr)("a")
	require.NoError(t, err)
}

// Two servers that start at once do not get the same port, nor one that is to restart.
func TestAPortIsGivenOnce(t *testing.T) {
	given := map[int]bool{}
	for range 8 {
		given[FreePort(t, 19_000, 19_020)] = true
	}
	if len(given) != 8 {
		t.Fatalf("%d ports", len(given))
	}
}
