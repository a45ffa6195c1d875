package redislock_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
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

// By default a caller that comes again and again gets turns of one lease, whose fences follow each other.
func TestAKeyInSteadyUseLingers(t *testing.T) { // rule T12
	t.Parallel()
	s := redistest.Start(t)
	const turns = 200
	sameLease := func(opts ...wllock.Option) (n int) {
		l := locker(t, s.Addr, opts...)
		var last uint64
		for range turns {
			require.NoError(t, l.Do(t.Context(), "n", t.Name(), func(ctx context.Context) error {
				held, _ := wllock.HeldFrom(ctx)
				if held.Fence() == last+1 {
					n++
				}
				last = held.Fence()
				return nil
			}))
		}
		return n
	}
	require.Greater(t, sameLease(), turns/2)
	require.Zero(t, sameLease(wllock.WithLinger(0)))
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

// Before a server has ever answered, a caller that leaves is let go at once, as from then on, though a new connection may take long.
func TestACancelBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts for it
	require.NoError(t, err)
	defer silent.Close()
	l := locker(t, silent.Addr().String())
	for _, name := range []string{"first", "behind the first"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		left, leave := context.WithCancel(t.Context()) // without a deadline
		context.AfterFunc(ctx, leave)
		start := time.Now()
		require.ErrorIs(t, l.Do(left, "n", name, func(context.Context) error { return nil }), context.Canceled)
		testscope.InTime(t, time.Since(start), 50*time.Millisecond+distributed.HeartbeatInterval(wllock.DefaultLeaseTTL), "the return")
	}
}

// A proxy that lacks a command closes the connection: the error says at which.
func TestACommandThatAProxyLacksIsNamed(t *testing.T) {
	t.Parallel()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer proxy.Close()
	go func() {
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for got := make([]byte, 4096); ; {
					n, err := c.Read(got)
					if text := strings.ToLower(string(got[:n])); err != nil || strings.Contains(text, "info") {
						return
					}
					if _, err = c.Write([]byte("-ERR unknown command\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	b, err := redislock.Open("redis://" + proxy.Addr().String())
	require.NoError(t, err)
	defer b.Close()
	for patience := 100 * time.Millisecond; ; patience *= 2 { // a busy machine connects later
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := b.Ping(ctx)
		cancel()
		if strings.Contains(err.Error(), "the connection is closed at INFO, as by a proxy that lacks it") {
			return
		}
		require.Less(t, patience, time.Minute, err)
	}
}
