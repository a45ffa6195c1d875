package memcachelock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// A server that was restarted has forgotten the lock and its queue. The holder notices with its next renewal, and one that
// waits is in the queue again.
func TestRestartForgetsTheLock(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	b, other := open(t, server.Addr), open(t, server.Addr)
	l := leased(t, b, request("k", "a"))
	p := queued(t, other, request("k", "b"))
	server.Kill()
	require.Error(t, b.Ping(t.Context()))
	server.Restart()
	next := granted(t, p)
	lost(t, l)
	assert.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
	release(t, next)
}

// A server whose memory is full evicts a lock that is not renewed for a while: the next caller acquires it, and the holder
// notices with its next renewal.
func TestEviction(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t, "-m", "1", "-I", "512k")
	b, c := open(t, server.Addr), client(t, server.Addr)
	l := leased(t, b, request("k", "a"))
	item, err := c.Get(itemKey("k"))
	require.NoError(t, err)
	var fill bytes.Buffer // with items of the same slab class, all in one go, since each renewal makes the lock's a recent one
	for i := range 20_000 {
		fmt.Fprintf(&fill, "set %s-%d 0 0 %d noreply\r\n%s\r\n", item.Key, i, len(item.Value), item.Value)
	}
	conn, err := net.Dial("tcp", server.Addr)
	require.NoError(t, err)
	defer conn.Close()
	require.Eventually(t, func() bool {
		_, err := conn.Write(fill.Bytes())
		require.NoError(t, err)
		return len(look(t, c, "k").Owners) == 0
	}, patience, time.Millisecond)
	lost(t, l)
	_, err = fmt.Fprint(conn, "version\r\n") // is answered when all is done that may evict the next lock, too
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 64))
	require.NoError(t, err)
	release(t, leased(t, b, request("k", "b")))
}

// A server that stands still for longer than T: the holder's lease ends by its own clock, and not before that the lock is another's.
func TestPausedServer(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	server := dbtest.Memcached(t)
	b, other := open(t, server.Addr), open(t, server.Addr)
	l := leased(t, b, request("k", "a"))
	p := queued(t, other, request("k", "b"))
	server.Pause()
	lost(t, l)
	assert.True(t, distributed.Over(time.Now(), l.Until()))
	_, _, err := b.Enter(t.Context(), request("another", "a"))
	assert.ErrorIs(t, err, distributed.ErrUnavailable)
	server.Resume()
	release(t, granted(t, p))
}

// A holder that is closed renews nothing any more. Those that wait take it out, T after its last sign of life, and its item goes by itself
// if nobody waits.
func TestDeadHolder(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	server := dbtest.Memcached(t)
	b, other, c := open(t, server.Addr), open(t, server.Addr), client(t, server.Addr)
	l := leased(t, b, request("k", "a"))
	require.Eventually(t, func() bool { return look(t, c, "k").Owners[0].Beat > 0 }, patience, time.Millisecond)
	p := queued(t, other, request("k", "b"))
	leased(t, b, request("alone", "a"))
	require.NoError(t, b.Close())
	start := time.Now()
	next := granted(t, p)
	assert.Less(t, time.Since(start), ttl+distributed.HeartbeatInterval(ttl)+time.Second)
	require.True(t, distributed.Over(time.Now(), l.Until()))
	release(t, next)
	require.Eventually(t, func() bool {
		req := request("alone", "b")
		req.NoWait = true
		l, _, err := other.Enter(t.Context(), req)
		if err != nil {
			require.ErrorIs(t, err, distributed.ErrHeld)
			return false
		}
		release(t, l)
		return true
	}, patience, ttl/100)
	assert.Less(t, time.Since(start), 2*ttl+2*time.Second+patience/4)
}

// keysOn returns keys that lie on one of several servers.
func keysOn(t *testing.T, b *Backend, addr string, n int) (all []string) {
	t.Helper()
	for i := 0; len(all) < n; i++ {
		require.Less(t, i, 100*n)
		if key := fmt.Sprintf("shop:product:%d", i); b.serverOf(key) == addr {
			all = append(all, key)
		}
	}
	return all
}

// two returns a Backend of Open over two servers.
func two(t *testing.T, first, second string) *Backend {
	t.Helper()
	b, err := Open("memcached://" + first + "," + second + "?unfenced=true")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A server that is silent holds up nothing at another one: leases there are renewed, released and acquired as before, whatever is to be
// released and renewed at the silent one (rule C7).
func TestSilentServerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	first, second := dbtest.Memcached(t), dbtest.Memcached(t)
	b := two(t, first.Addr, second.Addr)
	on := func(addr string, n int) (leases []distributed.Lease) {
		for _, key := range keysOn(t, b, addr, n) {
			leases = append(leases, leased(t, b, request(key, "a")))
		}
		return leases
	}
	silent, healthy := on(second.Addr, 300), on(first.Addr, 20)
	second.Pause()
	defer second.Resume()
	for _, l := range silent[:200] {
		l.StartRelease()
	}
	last := keysOn(t, b, first.Addr, 21)[20]
	var slowest time.Duration
	for start := time.Now(); time.Since(start) < 3*ttl/2; time.Sleep(ttl / 100) {
		asked := time.Now()
		release(t, leased(t, b, request(last, "a")))
		slowest = max(slowest, time.Since(asked))
		for _, l := range healthy {
			require.Positive(t, time.Until(l.Until()))
		}
	}
	t.Logf("at most %v for a lock and its release", slowest)
	require.Less(t, slowest, ttl/4)
	for _, l := range silent[200:] {
		lost(t, l)
	}
}

// What one server of several leaves unanswered concerns its own keys: the others are locked as before, Health and Ping say that locks can be
// acquired, and with LocalOnly nobody enters beside a holder. When no server answers the backend is away.
func TestOneOfTwoServersIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testproc.Server){"silent": (*testproc.Server).Pause, "dead": (*testproc.Server).Kill} {
		for _, outage := range []wllock.Outage{wllock.FailClosed, wllock.LocalOnly} {
			t.Run(fmt.Sprint(name, " ", outage), func(t *testing.T) {
				t.Parallel()
				first, second := dbtest.Memcached(t), dbtest.Memcached(t)
				b := two(t, first.Addr, second.Addr)
				l, err := wllock.New("shop", b, wllock.WithLeaseTTL(time.Second), wllock.WithOutage(outage))
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close(context.Background())) }()
				product := func(addr string) func(...wllock.CallOption) error {
					_, key, _ := strings.Cut(keysOn(t, b, addr, 1)[0], "product:")
					return func(opts ...wllock.CallOption) error {
						return l.Do(t.Context(), "product", key, func(ctx context.Context) error {
							held, _ := wllock.HeldFrom(ctx)
							require.False(t, held.Degraded())
							return nil
						}, opts...)
					}
				}
				healthy, gone := product(first.Addr), product(second.Addr)
				taken := leased(t, two(t, first.Addr, second.Addr), distributed.Request{
					Key: keysOn(t, b, first.Addr, 2)[1], Instance: "another", TTL: time.Minute,
				})
				_, key, _ := strings.Cut(keysOn(t, b, first.Addr, 2)[1], "product:")
				require.NoError(t, gone())
				away(second)
				for start := time.Now(); time.Since(start) < 3*time.Second; {
					if err := gone(wllock.WithWait(200 * time.Millisecond)); outage == wllock.FailClosed || !errors.Is(err, wllock.ErrWaitTimeout) {
						require.ErrorIs(t, err, wllock.ErrUnavailable)
					}
					require.NoError(t, healthy())
					require.ErrorIs(t, l.Do(t.Context(), "product", key, testlocker.Nothing, wllock.NoWait()), wllock.ErrHeld)
					require.True(t, l.Health().Available)
					require.NoError(t, l.Ping(t.Context()))
				}
				release(t, taken)
				first.Kill()
				require.Eventually(t, func() bool { _ = healthy(wllock.WithWait(time.Millisecond)); return !l.Health().Available }, patience, time.Millisecond)
				require.Error(t, l.Ping(t.Context()))
			})
		}
	}
}

// A server without cas cannot keep a lock, and says so.
func TestServerWithoutCAS(t *testing.T) {
	t.Parallel()
	b := open(t, dbtest.Memcached(t, "-C").Addr)
	err := b.Ping(t.Context())
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "-C")
}

// A document that another process has removed, or that was evicted, since it was read is a conflict: the change is tried again.
func TestChangeOfADocumentThatHasGone(t *testing.T) {
	t.Parallel()
	s := store{open(t, dbtest.Memcached(t).Addr)}
	_, err := s.Put(t.Context(), "k", []byte("{}"), "", ttl)
	require.NoError(t, err)
	read, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), "k", read.Version))
	_, err = s.Put(t.Context(), "k", []byte("{}"), read.Version, ttl)
	require.ErrorIs(t, err, register.ErrConflict)
	require.ErrorIs(t, s.Delete(t.Context(), "k", read.Version), register.ErrConflict)
}

// Nobody listens: that is known at once, and the caller is not kept.
func TestUnreached(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	b := open(t, server.Addr)
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _, err := b.Enter(ctx, request("k", "a"))
	require.ErrorIs(t, err, distributed.ErrUnreached)
}

// A server that has as many connections as it takes is asked again, and says so if that lasts. It has answered: it is not away.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t, "-c", "64", "-t", "1")
	b := open(t, server.Addr)
	var others []net.Conn
	free := func() {
		for _, c := range others {
			_ = c.Close()
		}
	}
	defer free()
	for range 100 {
		c, err := net.Dial("tcp", server.Addr)
		require.NoError(t, err)
		others = append(others, c)
	}
	_, _, err := b.Enter(t.Context(), request("k", "a"))
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "Too many open connections")
	time.AfterFunc(ttl/10, free)
	release(t, leased(t, b, request("k", "a")))
}

// A server that was restarted has closed all connections that the client keeps. They are no outage: a caller gets its lock, however many there
// are, and none is told that the server is away.
func TestRestartWithManyIdleConnections(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	b := open(t, server.Addr)
	l := testlocker.On(t, b, wllock.WithLeaseTTL(ttl))
	do := func(key string) error {
		return l.Do(t.Context(), "product", key, testlocker.Nothing, wllock.SyncRelease())
	}
	require.NoError(t, do("before"))
	server.Pause() // so that each needs a connection of its own
	var all sync.WaitGroup
	for range b.client.MaxIdleConns {
		all.Go(func() { _, _ = b.client.Get("none") })
	}
	time.Sleep(ttl / 20)
	server.Resume()
	all.Wait()
	server.Kill()
	server.Restart()
	require.NoError(t, do("after"))
	require.True(t, l.Health().Available)
}
