package redlock

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tlstest"
)

// Servers are trusted, and trust us, by the files that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	tlstest.Run(t, func(t *testing.T, server tlstest.Pair, clients string) (string, func(tlstest.Pair, string)) {
		var addrs []string
		var all []*tlstest.Proxy
		for _, one := range s.all {
			p := tlstest.NewProxy(t, one.Addr, server, clients)
			addrs, all = append(addrs, p.Addr), append(all, p)
		}
		return "redlocks://" + strings.Join(addrs, ","), func(server tlstest.Pair, clients string) {
			for _, p := range all {
				p.Show(t, server, clients)
			}
		}
	}, func(url string) (*Backend, error) { return Open(url) })
}

// TestRedlockNamesTheINFOThatIsRenamedAway: without it a server that was restarted would not be noticed.
func TestRedlockNamesTheINFOThatIsRenamedAway(t *testing.T) {
	t.Parallel()
	err := with(t, fresh(t, "--rename-command", "INFO", "")).Ping(t.Context())
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "redlock needs INFO")
	require.ErrorContains(t, err, "rename-command in redis.conf")
}

func TestTheDocumentedACLLineIsEnough(t *testing.T) {
	t.Parallel()
	s := startFor(t, 3, time.Minute)
	clients := s.as("shop")
	x, y := with(t, clients, WithQuorumFences()), with(t, clients, WithQuorumFences())
	require.NoError(t, x.Probe(t.Context(), distributed.Probe{Key: "shop:ping:ping", TTL: time.Second}))
	require.NoError(t, x.Echo(t.Context()))
	_, err := x.LongestTTL(t.Context(), "shop", time.Second)
	require.NoError(t, err)
	for range 3 {
		for _, change := range []func(*distributed.Request){lasting(time.Second), shared} { // heartbeats, claim; readers
			l := leaseOf(t, x, request("shop:product:1", "x"))
			p, _ := placeOf(t, y, request("shop:product:1", "y", change))
			release(t, l)
			l = await(t, p)
			require.NoError(t, l.Refill(t.Context()))
			release(t, l)
		}
	}
	l := leaseOf(t, x, request("shop:product:2", "x"))
	require.NoError(t, l.Downgrade(t.Context()))
	require.Contains(t, listed(t, y, "shop:", 10), "shop:product:2")
	_, err = y.Break(t.Context(), inspected(t, y, "shop:product:2"), "me", "it is stuck")
	require.NoError(t, err)
	<-l.Lost()
	id, _ := detached(t, x, "shop:product:3", time.Minute)
	l, err = y.Adopt(t.Context(), request("shop:product:3", "y"), id)
	require.NoError(t, err)
	release(t, l)
	for _, one := range s.all {
		require.Empty(t, one.Do("ACL", "LOG"), "nothing was refused")
	}
}

// An Enter whose time is over between two tries says what the servers have said.
func TestEnterSaysWhyNoMajorityAnswers(t *testing.T) {
	t.Parallel()
	b, err := Open("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3") // nobody listens there
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	require.Eventually(t, func() bool { // a busy machine may not have dialed all by then
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, _, err := b.Enter(ctx, request("k", "x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return strings.Contains(err.Error(), "connection refused")
	}, patience, time.Millisecond)
}

// A password file is read for each connection to each server.
func TestPasswordFileCanChange(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	file := filepath.Join(t.TempDir(), "password")
	set := func(password string) {
		require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
		s.do("ACL", "SETUSER", "shop", "on", "resetpass", ">"+password, "allkeys", "allchannels", "allcommands")
		s.do("CLIENT", "KILL", "USER", "shop")
	}
	set("first")
	b, err := Open(strings.Replace(s.url(), "//", "//shop@", 1), WithPasswordFile(file))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	admitted := func() bool { return b.Ping(t.Context()) == nil }
	require.Eventually(t, admitted, patience, 10*time.Millisecond)
	set("second")
	require.Eventually(t, admitted, patience, 10*time.Millisecond)
}
