package redislock

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// locker returns a Locker as a process of its own would have it: with a backend of its own, which may have options.
func locker(t *testing.T, url string, of []Option, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	b, err := Open(url, of...)
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

// kinds are the calls whose leases may linger.
var kinds = map[string][]wllock.CallOption{"alone": nil, "shared": {wllock.Shared()}, "permit": {wllock.Permits(3)}}

// A holder whose lease lingers is told that another process was refused, once, and gives it back.
func TestARefusalEndsLingering(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t).Addr
	a, other := locker(t, url, nil, wllock.WithLinger(time.Hour)), locker(t, url, nil)
	for name, opts := range kinds {
		require.NoError(t, a.Do(t.Context(), "n", name, testlocker.Nothing, opts...))
		again := func() error { return other.Do(t.Context(), "n", name, testlocker.Nothing, wllock.NoWait()) }
		require.ErrorIs(t, again(), wllock.ErrHeld)
		require.Eventually(t, func() bool { return again() == nil }, patience, time.Millisecond, name)
	}
}

// By default a caller that comes again and again gets turns of one lease, whose fences follow each other.
func TestAKeyInSteadyUseLingers(t *testing.T) { // rule T12
	t.Parallel()
	s := redistest.Start(t)
	const turns = 200
	sameLease := func(opts ...wllock.Option) (n int) {
		l := locker(t, "redis://"+s.Addr, nil, opts...)
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
	l := locker(t, "redis://"+s.Addr, []Option{WithInteropGap(time.Millisecond)}, wllock.WithLinger(time.Hour))
	for name, opts := range kinds {
		require.NoError(t, l.Do(t.Context(), "n", name, testlocker.Nothing, opts...))
		theirs := conventional{s.Client(), "shop:n:" + name}
		require.Eventually(t, func() bool { return theirs.lock(t.Context()) }, patience, time.Millisecond, name)
	}
}

// Before a server has ever answered, a caller that leaves is let go at once, as from then on, though a new connection may take long.
func TestACancelBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts for it
	require.NoError(t, err)
	defer silent.Close()
	l := locker(t, "redis://"+silent.Addr().String(), nil)
	for _, name := range []string{"first", "behind the first"} {
		left, leave := context.WithCancel(t.Context()) // without a deadline
		start := time.Now()
		time.AfterFunc(50*time.Millisecond, leave)
		require.ErrorIs(t, l.Do(left, "n", name, testlocker.Nothing), context.Canceled)
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
	b := byURL(t, "redis://"+proxy.Addr().String())
	for patience := 100 * time.Millisecond; ; patience *= 2 { // a busy machine connects later
		err := b.Ping(within(t, patience))
		if strings.Contains(err.Error(), "the connection is closed at INFO, as by a proxy that lacks it") {
			return
		}
		require.Less(t, patience, time.Minute, err)
	}
}

// A client may limit its connections. Callers wait for one then; none is told that the server is away, no held lock is lost,
// and the limit is kept.
func TestTheClientsLimitsAreBorne(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*redis.Options){
		"MaxActiveConns of 5":   func(o *redis.Options) { o.MaxActiveConns = 5 },
		"MaxActiveConns of 1":   func(o *redis.Options) { o.MaxActiveConns = 1 },
		"PoolSize of 1":         func(o *redis.Options) { o.PoolSize = 1 },
		"a PoolTimeout of 1 ns": func(o *redis.Options) { o.MaxActiveConns, o.PoolTimeout = 5, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(limit)
			testlocker.Crowd(t, with(t, client))
			if most := max(client.Options().MaxActiveConns, 3); client.Options().MaxActiveConns > 0 {
				list, _ := s.Do("CLIENT", "LIST").(string)
				require.LessOrEqual(t, strings.Count(list, "\n"), most+2, "%s\nand a subscription, and the one that asks", list)
			}
		})
	}
}
