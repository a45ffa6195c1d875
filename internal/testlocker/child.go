package testlocker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
)

// childEnv makes the test binary play one part of a test as a process of its own.
const childEnv = "WLLOCK_TEST_CHILD"

// Open opens a backend as a process of its own does.
type Open func(url string) (distributed.Backend, error)

// part is what a process does.
type part struct {
	URL, Key string
	TTL      time.Duration
	Limit    int // of permits; 0: the lock alone
}

// Child plays the part of a process, and reports whether this is one. TestMain calls it first.
func Child(open Open) bool {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return false
	}
	var p part
	err := json.Unmarshal([]byte(text), &p)
	var b distributed.Backend
	if err == nil {
		b, err = open(p.URL)
	}
	if err == nil {
		err = p.hold(b)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return true
}

func (p part) request(instance string) distributed.Request {
	req := distributed.Request{Key: p.Key, Instance: instance, TTL: p.TTL}
	p.as(&req)
	return req
}

// as makes a request one for a permit, if there is a limit.
func (p part) as(r *distributed.Request) {
	if p.Limit > 0 {
		ForOneOf(p.Limit)(r)
	}
}

// hold enters and says on standard output what becomes of it, line by line, until its input ends.
func (p part) hold(b distributed.Backend) error {
	l, place, err := enter(context.Background(), b, p.request(fmt.Sprint("child", os.Getpid())))
	if err != nil {
		return err
	}
	if place != nil {
		fmt.Println("queued")
		l = <-place.Granted()
	}
	fence, err := fenceAfter(0, l)
	if err != nil {
		return err
	}
	fmt.Println("held", fence)
	go func() {
		<-l.Lost()
		_, more := l.NextFence()
		fmt.Println("lost", distributed.Over(time.Now(), l.Until()), l.Healthy(), more)
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// process is one that plays a part.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func (p part) start(t *testing.T) *process {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	c := &process{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err = c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		c.kill()
	})
	return c
}

func (c *process) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// kill is kill -9, also of one that is stopped.
func (c *process) kill() {
	c.signal(syscall.SIGKILL)
	_ = c.cmd.Wait()
}

// says waits for the next line, and returns what follows the word that it must begin with.
func (c *process) says(word string) string {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatalf("the process has ended; want it to say %q", word)
	}
	rest, ok := strings.CutPrefix(c.lines.Text(), word)
	if !ok {
		c.t.Fatalf("the process says %q; want %q", c.lines.Text(), word)
	}
	return strings.TrimSpace(rest)
}
