package stack_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

const stopTTL = 500 * time.Millisecond

// stopShop is a Locker with LocalOnly on a Redis server.
func stopShop(t *testing.T, addr string) *wllock.Locker {
	return lockerOn(t, redisOn(t, addr), wllock.WithLeaseTTL(stopTTL), wllock.WithOutage(wllock.LocalOnly))
}

// A process that was stopped past its lease has no outage: the lock is lost, not degraded, as its first look says.
func TestLocalOnlyStoppedProcessHasLostItsLock(t *testing.T) {
	testscope.Long(t, "stops processes")
	s := redistest.Start(t)
	child := exec.Command(os.Args[0], "-test.run=^TestChildThatHoldsLocalOnly$")
	child.Env = append(os.Environ(), "WLLOCK_TEST_HOLD="+s.Addr)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	pipe, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	out := bufio.NewScanner(pipe)
	require.True(t, out.Scan())
	require.Equal(t, "in", out.Text())

	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	time.Sleep(2 * stopTTL)
	other := try(stopShop(t, s.Addr), "k")
	require.Equal(t, served{after: other.after, fence: other.fence}, other)
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	_, err = in.Write([]byte("go on\n"))
	require.NoError(t, err)
	require.True(t, out.Scan())
	require.Equal(t, "lost: true, degraded: false", out.Text())
	require.True(t, out.Scan())
	require.Equal(t, "lost: true", out.Text())
}

// TestChildThatHoldsLocalOnly is the process of the test above. It prints as soon as it continues.
func TestChildThatHoldsLocalOnly(t *testing.T) {
	addr := os.Getenv("WLLOCK_TEST_HOLD")
	if addr == "" {
		return
	}
	err := stopShop(t, addr).Do(t.Context(), "n", "k", func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		time.Sleep(stopTTL) // so that the lease is claimed
		fmt.Println("in")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("lost: %v, degraded: %v\n", errors.Is(h.Err(), wllock.ErrLeaseLost), h.Degraded())
		return err
	})
	fmt.Printf("lost: %v\n", errors.Is(err, wllock.ErrLeaseLost))
	_ = os.Stdout.Sync()
}

// A server that hangs without closing a connection is as unreachable as one that is gone.
func TestLocalOnlyServerThatHangs(t *testing.T) {
	testscope.Long(t, "stops a server")
	s := redistest.Start(t)
	l := stopShop(t, s.Addr)
	require.NoError(t, try(l, "k").err)
	k, err := l.Acquire(t.Context(), "n", "held")
	require.NoError(t, err)
	time.Sleep(stopTTL) // so that the lease is claimed: the claim window would end before the outage is noticed
	s.Pause()
	got := try(l, "k", wllock.WithWait(3*stopTTL))
	require.Equal(t, served{after: got.after, degraded: true}, got)
	require.GreaterOrEqual(t, got.after, stopTTL)
	require.NoError(t, k.Err())
	require.True(t, k.Degraded(), "the hold that ran")
	s.Resume()
	require.Eventually(t, func() bool { return !try(l, "k").degraded }, 2*time.Second, 10*time.Millisecond)
	require.NoError(t, k.Release(t.Context()))
	after := try(l, "held", wllock.WithWait(2*stopTTL))
	require.Equal(t, served{after: after.after, fence: after.fence}, after)
	require.Greater(t, after.fence, k.Fence())
}
