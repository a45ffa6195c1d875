package memcachelock

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/dbtest"
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
	require.NoError(t, next.Release(t.Context()))
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
	l = leased(t, b, request("k", "b"))
	require.NoError(t, l.Release(t.Context()))
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
	next := granted(t, p)
	require.NoError(t, next.Release(t.Context()))
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
	require.NoError(t, next.Release(t.Context()))
	require.Eventually(t, func() bool {
		req := request("alone", "b")
		req.NoWait = true
		l, _, err := other.Enter(t.Context(), req)
		if err != nil {
			require.ErrorIs(t, err, distributed.ErrHeld)
			return false
		}
		require.NoError(t, l.Release(t.Context()))
		return true
	}, patience, ttl/100)
	assert.Less(t, time.Since(start), 2*ttl+2*time.Second+patience/4)
}

// Leases on a server that answers are renewed while another one does not.
func TestOneOfTwoServersIsAway(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	first, second := dbtest.Memcached(t), dbtest.Memcached(t)
	b := open(t, first.Addr, second.Addr)
	b.client.Timeout = ttl / 20 // as New says
	var leases []distributed.Lease
	for i := range 40 {
		leases = append(leases, leased(t, b, request(fmt.Sprint("k", i), "a")))
	}
	require.Eventually(t, func() bool { // all are claimed
		return !slices.ContainsFunc(leases, func(l distributed.Lease) bool { left := time.Until(l.Until()); return left < ttl/2 })
	}, patience, ttl/100)
	second.Pause()
	time.Sleep(2 * ttl)
	var alive int
	for _, l := range leases {
		if left := time.Until(l.Until()); left > ttl/3 { // what a tenure needs
			alive++
			require.NoError(t, l.Release(t.Context()))
		} else {
			lost(t, l)
		}
	}
	second.Resume()
	t.Logf("%d of %d leases are alive", alive, len(leases))
	require.Greater(t, alive, 5)
	require.Less(t, alive, 35)
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
	s := store{client(t, dbtest.Memcached(t).Addr)}
	require.NoError(t, s.Put(t.Context(), "k", []byte("{}"), 0, ttl))
	read, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), "k", read.Version))
	require.ErrorIs(t, s.Put(t.Context(), "k", []byte("{}"), read.Version, ttl), register.ErrConflict)
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
