package etcdlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
)

// A lease that is shorter than what the server grants is refused, and the error says what it takes.
func TestShortTTLsAreRefused(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	_, _, err := asker(t, b, "k").Try("a", lasting(900*time.Millisecond))
	require.ErrorIs(t, err, ErrInvalidTTL)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "at least 1s")
	release(t, asker(t, b, "k").Lease("a", lasting(1900*time.Millisecond))) // of an etcd lease of a second
}

// A full database refuses to write: the error says what to do, what is held goes on, and is released.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "--quota-backend-bytes=2000000")
	b := open(t, server.Addr, newPrefix())
	l := asker(t, b, "k").Lease("a")
	c := plainClient(t, server.Addr)
	var err error
	for err == nil {
		_, err = c.Put(t.Context(), "/fill", strings.Repeat("x", 1_000_000))
	}
	for _, err := range []error{b.Ping(t.Context()), func() error { _, _, err := asker(t, b, "other").Try("a"); return err }()} {
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "the database is full (alarm NOSPACE): compact, defragment and disarm it")
	}
	require.NoError(t, b.Echo(t.Context()))
	claimed(t, l)
	release(t, l)
}
