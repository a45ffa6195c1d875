//go:build linux

package slowlink

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wllock/wllock/internal/testscope"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func start(t *testing.T, delay time.Duration) *Proxy {
	t.Helper()
	p, err := Start(echo(t), delay)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func roundTrip(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	return time.Since(start)
}

func TestTheDelayIsExact(t *testing.T) {
	testscope.Long(t, "bounds wall time")
	const delay = 500 * time.Microsecond
	c := dial(t, start(t, delay))
	took := make([]time.Duration, 300)
	for i := range took {
		took[i] = roundTrip(t, c)
	}
	slices.Sort(took)
	assert.GreaterOrEqual(t, took[0], 2*delay)
	assert.Less(t, took[len(took)/2], 2*delay+time.Millisecond) // generous, because the machine may be busy
	t.Logf("median %v, 99%% %v", took[len(took)/2], took[len(took)*99/100])
}

func TestPacketsDoNotWaitForEachOther(t *testing.T) {
	testscope.Long(t, "bounds wall time")
	const delay, many = 20 * time.Millisecond, 20
	p := start(t, delay)
	begin := time.Now()
	var wg sync.WaitGroup
	for range many {
		c := dial(t, p)
		wg.Go(func() { roundTrip(t, c) })
	}
	wg.Wait()
	assert.Less(t, time.Since(begin), many*delay/2)
}

func TestMuchDataComesThroughUnchanged(t *testing.T) {
	c := dial(t, start(t, 100*time.Microsecond))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got))
}

func TestTheEndOfAConnectionPassesOn(t *testing.T) {
	p := start(t, time.Millisecond)
	for range 50 { // numbers of descriptors come back
		c := dial(t, p)
		roundTrip(t, c)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		_, err := io.ReadAll(c)
		require.NoError(t, err)
		c.Close()
	}
	late, cpu := p.Late()
	assert.NotZero(t, late.Count)
	assert.Positive(t, cpu)
}

func TestNothingIsSentToTheNextUserOfADescriptor(t *testing.T) {
	pair := func() [2]int {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		return fds
	}
	client, server := pair(), pair()
	near, far := &side{fd: client[0]}, &side{fd: server[0]}
	near.peer, far.peer = far, near
	p := &Proxy{sides: map[int]*side{near.fd: near, far.fd: far}}
	p.queue = []packet{{to: far}, {due: time.Now().Add(time.Hour), to: near, data: []byte("late")}}
	p.deliver()
	require.Empty(t, p.sides, "the end of the connection")

	next := pair() // takes the numbers
	require.ElementsMatch(t, []int{client[0], server[0]}, next[:])
	p.queue[0].due = time.Now()
	p.deliver()
	for _, fd := range next {
		_, err := unix.Read(fd, make([]byte, 4))
		require.Equal(t, unix.EAGAIN, err, "open, and nothing has come")
	}
	for _, fd := range []int{client[1], server[1], next[0], next[1]} {
		require.NoError(t, unix.Close(fd))
	}
}
