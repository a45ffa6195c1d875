package redislock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// childVariable makes the test binary play one part of a test as a process of its own: "role addr key ttl more...".
const childVariable = "WLLOCK_TEST_CHILD"

// runChild enters and says on standard output what becomes of it, line by line, until its input ends.
func runChild(part string) {
	f := strings.Fields(part)
	ttl, _ := time.ParseDuration(f[3])
	if f[0] == "fleet" {
		runFleet(f[1], f[2], ttl, f[4:])
		return
	}
	client := redis.NewClient(&redis.Options{Addr: f[1]})
	b, err := New(client)
	if err != nil {
		panic(err)
	}
	req := distributed.Request{Key: f[2], Instance: fmt.Sprint("child", os.Getpid()), TTL: ttl}
	if len(f) > 4 {
		req.Mode = distributed.Shared
		req.Limit, _ = strconv.Atoi(f[4])
	}
	l, p, err := b.Enter(context.Background(), req)
	if err != nil {
		panic(err)
	}
	if p != nil {
		fmt.Println("queued")
		l = <-p.Granted()
	}
	n, _ := l.NextFence()
	fmt.Println("held", n)
	go func() {
		<-l.Lost()
		_, ok := l.NextFence()
		fmt.Println("lost", distributed.Over(time.Now(), l.Until()), l.Healthy(), ok)
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// child is such a process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// startChild starts one that enters, for a permit if a limit follows.
func startChild(t *testing.T, addr, key string, ttl time.Duration, limit ...string) *child {
	t.Helper()
	return startRole(t, "enter", append([]string{addr, key, ttl.String()}, limit...)...)
}

func startRole(t *testing.T, role string, args ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", childVariable, role, strings.Join(args, " ")))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.lines = bufio.NewScanner(out)
	t.Cleanup(func() {
		c.signal(syscall.SIGCONT)
		_ = in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// says waits for the next line and returns what follows the word it must begin with.
func (c *child) says(word string) string {
	c.t.Helper()
	require.True(c.t, c.lines.Scan(), "the child has ended; want it to say %q", word)
	rest, ok := strings.CutPrefix(c.lines.Text(), word)
	require.True(c.t, ok, "the child says %q; want %q", c.lines.Text(), word)
	return strings.TrimSpace(rest)
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }
