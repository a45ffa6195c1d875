// Package jobs has the tests of WithHoldAtLeast, Lead and WrapBatch with real processes over a real Redis, which are killed and stopped.
package jobs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
)

func TestMain(m *testing.M) {
	if part, ok := os.LookupEnv(childVariable); ok {
		runChild(part)
		return
	}
	// After many failed dials go-redis dials once a second in the background: this ends within a second of Close.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// childVariable makes the test binary a process of a test: "role addr", and what the role takes.
const childVariable = "WLLOCK_TEST_CHILD"

// runChild plays a role until standard input ends, which it does when the test does.
func runChild(part string) {
	f := strings.Fields(part)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	store := redis.NewClient(&redis.Options{Addr: f[1], DB: 1}) // beside the locks
	backend, err := redislock.Open("redis://" + f[1])
	must(err)
	locker, err := wllock.New("test", backend, wllock.WithLeaseTTL(duration(f[2])))
	must(err)
	switch f[0] {
	case "ticks":
		runTicks(locker, store, f[3:])
	case "lead":
		lead(locker, store)
	case "batch":
		sellBatches(locker, store)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	must(err)
	return d
}

// child is a process that plays a role.
type child struct {
	t     *testing.T
	part  string
	lines chan<- line

	mu    sync.Mutex
	cmd   *exec.Cmd
	input io.Closer
	read  chan struct{} // closed when all that the process has said was read
}

// line is what a child says.
type line struct {
	from *child
	at   time.Time
	text string
}

func startChild(t *testing.T, lines chan<- line, part ...any) *child {
	c := &child{t: t, part: strings.TrimSpace(fmt.Sprintln(part...)), lines: lines}
	c.start()
	t.Cleanup(c.kill)
	return c
}

// start starts the process, again if it was killed.
func (c *child) start() {
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+c.part)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(c.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- line{c, time.Now(), s.Text()}
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd, c.input, c.read = cmd, in, read
}

// kill is kill -9.
func (c *child) kill() {
	c.mu.Lock()
	cmd, in, read := c.cmd, c.input, c.read
	c.mu.Unlock()
	_ = cmd.Process.Kill()
	_ = in.Close()
	<-read
	_ = cmd.Wait()
}

func (c *child) signal(s syscall.Signal) { require.NoError(c.t, c.cmd.Process.Signal(s)) }
