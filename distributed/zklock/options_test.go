package zklock

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// Nodes belong to the user; another one learns at the start what it lacks.
func TestAnotherUserIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	root, file := newRoot(), filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("\ufeffsecret\r\n"), 0o600))
	b := open(t, zktest.Shared(t).Addr, root, WithAuth("shop", "secret"))
	ready(t, b)
	l := asker(t, b, "k").Lease("a")
	acl, _, err := userConn(t, "shop:secret").GetACL(claimOf(l).path())
	require.NoError(t, err)
	require.Equal(t, zk.DigestACL(zk.PermAll, "shop", "secret"), acl)

	same := open(t, zktest.Shared(t).Addr, root, WithAuthFile("shop", file))
	ready(t, same)
	p := asker(t, same, "k").Place("b")
	release(t, l)
	release(t, granted(t, p))

	for name, other := range map[string]Option{"wrong": WithAuth("shop", "wrong"), "nobody": func(*settings) {}} {
		b := open(t, zktest.Shared(t).Addr, root, other)
		require.Eventually(t, func() bool { err = b.Ping(t.Context()); return err != nil }, patience, time.Millisecond)
		require.ErrorIs(t, err, distributed.ErrRefused, name)
		require.ErrorIs(t, err, zk.ErrNoAuth, name)
		require.ErrorContains(t, err, root)
		_, _, err = b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "c", TTL: ttl})
		require.ErrorIs(t, err, distributed.ErrRefused, name)
		require.NoError(t, b.Echo(t.Context()), "it answers")
	}
}

// Credentials are shown again to a server that the session moves to.
func TestCredentialsAfterAReconnect(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t)
	b := open(t, proxy.Addr, newRoot(), WithAuth("shop", "secret"))
	ask := asker(t, b, "k")
	l := ask.Lease("a")
	proxy.Cut()
	release(t, l)
	release(t, ask.Lease("a"))
}

func TestACLOfOurOwn(t *testing.T) {
	t.Parallel()
	want := append(zk.DigestACL(zk.PermAll, "shop", "secret"), zk.WorldACL(zk.PermRead)...)
	b := open(t, zktest.Shared(t).Addr, newRoot(), WithAuth("shop", "secret"), WithACL(want...))
	l := asker(t, b, "k").Lease("a")
	acl, _, err := userConn(t, "shop:secret").GetACL(claimOf(l).path())
	require.NoError(t, err)
	require.Equal(t, want, acl)
	release(t, l)
}

// The server grants no session below two ticks; a lease shorter than its session would not be free when it promises.
func TestATTLBelowTheSessionsIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	var err error
	require.Eventually(t, func() bool { // a busy machine may lose a session as short as that
		_, _, err = asker(t, b, "k").Try("a", lasting(2*zktest.Tick-time.Millisecond))
		return errors.Is(err, ErrInvalidTTL)
	}, patience, time.Millisecond)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "200ms")

	b = open(t, zktest.Shared(t).Addr, newRoot(), WithSessionTimeout(ttl))
	_, _, err = asker(t, b, "k").Try("a", lasting(ttl-1))
	require.ErrorIs(t, err, ErrInvalidTTL)
	l := asker(t, b, "k").Lease("a")
	release(t, l)
	release(t, asker(t, b, "k").Lease("a", lasting(time.Minute)))
	require.Len(t, b.sessions.All(), 1)
}

func TestLongestTTL(t *testing.T) {
	t.Parallel()
	root := newRoot()
	b, other := open(t, zktest.Shared(t).Addr, root), open(t, zktest.Shared(t).Addr, root)
	ready(t, b)
	ready(t, other)
	longest := func(b *Backend, system string, own, want time.Duration) {
		t.Helper()
		got, err := b.LongestTTL(t.Context(), system, own)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	longest(b, "shop", 5*time.Second, 5*time.Second)
	longest(other, "shop", 3*time.Second, 5*time.Second)
	longest(other, "shop", 8*time.Second, 8*time.Second)
	longest(b, "shop", 5*time.Second, 8*time.Second)
	longest(b, "another/shop", time.Second, time.Second)

	// A note of ten minutes ago is forgotten, and its node deleted.
	s := b.sessions.All()[0]
	dir := root + "/" + ttlName + "/shop"
	later, err := b.note(t.Context(), s, dir+"/1")
	require.NoError(t, err)
	got, err := b.longest(t.Context(), s, dir, time.Second, later+(10*time.Minute).Milliseconds())
	require.NoError(t, err)
	require.Equal(t, time.Second, got)
	children, _, err := plainConn(t, zktest.Shared(t).Addr).Children(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, children)
}

func TestExchangesAreObserved(t *testing.T) {
	testscope.Long(t, "takes 2 s")
	t.Parallel()
	proxy := newProxy(t)
	b := open(t, proxy.Addr, newRoot())
	ready(t, b)
	answered := testlocker.Counted(t, b, func(e distributed.Exchange) bool { return e.Err == nil && e.RTT > 0 })
	silent := testlocker.Counted(t, b, func(e distributed.Exchange) bool { return e.Err != nil && e.RTT == 0 })
	require.NoError(t, b.Echo(t.Context()))
	require.Positive(t, answered.Load())
	l := asker(t, b, "k").Lease("a")
	proxy.Stall(true)
	require.Error(t, b.Echo(t.Context()))
	require.Eventually(t, func() bool { return silent.Load() > 0 && !l.Healthy() }, patience, time.Millisecond)
	proxy.Stall(false)
	ready(t, b)
	before := answered.Load()
	require.Eventually(t, func() bool { return answered.Load() > before }, patience, time.Millisecond, "the syncs are reported")
}

func TestNoServerThere(t *testing.T) {
	t.Parallel()
	b, err := New([]string{"127.0.0.1:1"})
	require.NoError(t, err)
	unreached := testlocker.Counted(t, b, func(e distributed.Exchange) bool { return errors.Is(e.Err, distributed.ErrUnreached) })
	_, _, err = b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "a", TTL: 200 * time.Millisecond})
	assert.ErrorIs(t, err, distributed.ErrUnavailable)
	assert.ErrorIs(t, err, distributed.ErrUnreached)
	assert.Positive(t, unreached.Load())

	// An error says why there is no connection, and not only that time has passed.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = b.Ping(ctx)
	for _, is := range []error{distributed.ErrUnavailable, distributed.ErrUnreached, context.DeadlineExceeded} {
		require.ErrorIs(t, err, is)
	}
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "\n")
	start := time.Now()
	require.NoError(t, b.Close())
	testscope.InTime(t, time.Since(start), 10*time.Second, "Close")
	assert.ErrorIs(t, b.Ping(t.Context()), distributed.ErrClosed)
}

// What cannot be opened is nil, and not a nil pointer that passes for a Backend.
func TestOpenerOpensAURL(t *testing.T) {
	b, err := Opener(WithRoot("/locks"))(t.Context(), &url.URL{Scheme: "zk", Host: "h1,h2"})
	require.NoError(t, err)
	require.Equal(t, "/locks", b.(*Backend).set.root)
	require.NoError(t, b.Close())
	b, err = Opener()(t.Context(), &url.URL{Scheme: "redis", Host: "h1"})
	require.Error(t, err)
	require.Nil(t, b)
}
