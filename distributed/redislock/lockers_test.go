package redislock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// locker returns a Locker as a process of its own would have it: with a backend of its own.
func locker(t *testing.T, addr string, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	return lockerWith(t, addr, nil, opts...)
}

// lockerWith is locker with options of the backend.
func lockerWith(t *testing.T, addr string, of []redislock.Option, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	b, err := redislock.Open("redis://"+addr, of...)
	require.NoError(t, err)
	l, err := wllock.New("shop", b, append(opts, wllock.WithOwnedBackend())...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// jain is Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
func jain(shares []int) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

func TestEightLockersOnOneKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	for name, opts := range map[string][]wllock.Option{"tenures": nil, "every turn over Redis": {wllock.WithMaxHandoffs(0)}} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			const lockers, callers = 8, 16
			var last uint64 // guarded by the lock under test, as these all are
			var inside int
			turns := make([]int, lockers)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for i := range lockers {
				l := locker(t, s.Addr, opts...)
				for range callers {
					wg.Go(func() {
						for ctx.Err() == nil {
							err := l.Do(ctx, "product", "1", func(ctx context.Context) error {
								held, _ := wllock.HeldFrom(ctx)
								inside++
								if inside != 1 || held.Fence() <= last {
									t.Errorf("%d inside, fence %d after %d", inside, held.Fence(), last)
								}
								last = held.Fence()
								turns[i]++
								inside--
								return nil
							})
							if err != nil && !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			t.Logf("turns %v, Jain %.3f", turns, jain(turns))
			require.GreaterOrEqual(t, jain(turns), 0.95)
		})
	}
}

// A process that is stopped for two TTLs finds out before its next step, and its late write is refused.
func TestStoppedHolderLearnsOfItsLoss(t *testing.T) {
	testscope.Long(t, "stops processes")
	t.Parallel()
	s := redistest.Start(t)
	const ttl = 500 * time.Millisecond
	child := exec.Command(os.Args[0], "-test.run=^TestChildThatHolds$")
	child.Env = append(os.Environ(), "WLLOCK_TEST_HOLD="+s.Addr)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	pipe, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	out := bufio.NewScanner(pipe)

	var old uint64
	require.True(t, out.Scan())
	_, err = fmt.Sscanf(out.Text(), "in %d", &old)
	require.NoError(t, err)
	time.Sleep(ttl) // so that the lease is claimed
	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	var stored uint64 // the fence a store has seen last
	require.NoError(t, locker(t, s.Addr, wllock.WithLeaseTTL(ttl)).Do(t.Context(), "product", "1", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		stored = held.Fence()
		return nil
	}))
	time.Sleep(time.Until(stopped.Add(2 * ttl)))
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	_, err = in.Write([]byte("go on\n"))
	require.NoError(t, err)

	require.True(t, out.Scan())
	require.Equal(t, "step refused: true", out.Text())
	require.True(t, out.Scan())
	require.Equal(t, "lost: true, ran: true", out.Text())
	require.Less(t, old, stored, "the store refuses the older fence")
}

// TestChildThatHolds is the process of the test above.
func TestChildThatHolds(t *testing.T) {
	addr := os.Getenv("WLLOCK_TEST_HOLD")
	if addr == "" {
		return
	}
	err := locker(t, addr, wllock.WithLeaseTTL(500*time.Millisecond)).Do(t.Context(), "product", "1", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		fmt.Printf("in %d\n", held.Fence())
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		if strings.TrimSpace(line) == "go on" {
			fmt.Printf("step refused: %v\n", errors.Is(held.Err(), wllock.ErrLeaseLost))
		}
		return nil
	})
	var e *wllock.Error
	fmt.Printf("lost: %v, ran: %v\n", errors.Is(err, wllock.ErrLeaseLost), errors.As(err, &e) && e.Ran)
}

// A holder whose lease lingers is told that another process was refused, once, and gives it back.
func TestARefusalEndsLingering(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	nothing := func(context.Context) error { return nil }
	a, other := locker(t, s.Addr, wllock.WithLinger(time.Hour)), locker(t, s.Addr)
	for name, opts := range map[string][]wllock.CallOption{"alone": nil, "shared": {wllock.Shared()}, "permit": {wllock.Permits(3)}} {
		require.NoError(t, a.Do(t.Context(), "n", name, nothing, opts...))
		require.ErrorIs(t, other.Do(t.Context(), "n", name, nothing, wllock.NoWait()), wllock.ErrHeld)
		require.Eventually(t, func() bool { return other.Do(t.Context(), "n", name, nothing, wllock.NoWait()) == nil },
			10*time.Second, time.Millisecond, name)
	}
}

// With a gap for clients that are not wllock nothing lingers: they cannot say that they want the lock.
func TestNothingLingersWithAnInteropGap(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := lockerWith(t, s.Addr, []redislock.Option{redislock.WithInteropGap(time.Millisecond)}, wllock.WithLinger(time.Hour))
	theirs, nothing := s.Client(), func(context.Context) error { return nil }
	for name, opts := range map[string][]wllock.CallOption{"alone": nil, "shared": {wllock.Shared()}, "permit": {wllock.Permits(3)}} {
		require.NoError(t, l.Do(t.Context(), "n", name, nothing, opts...))
		require.Eventually(t, func() bool { return theirs.SetNX(t.Context(), "shop:n:"+name, "theirs", time.Minute).Val() },
			10*time.Second, time.Millisecond, name)
	}
}
