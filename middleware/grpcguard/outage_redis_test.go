package grpcguard_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/grpcguard"
)

// overRedis returns a Locker whose leases outlast a test in which the server hangs.
func overRedis(t *testing.T, server *redistest.Server) *wllock.Locker {
	t.Helper()
	b, err := redislock.Open("redis://" + server.Addr)
	require.NoError(t, err)
	l, err := wllock.New("test", b, wllock.WithLeaseTTL(20*time.Second), wllock.WithOwnedBackend())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		assert.NoError(t, l.Close(ctx))
	})
	return l
}

// The work is done and the lock was kept to the end, so there is no reason to wait for Redis to answer the release.
func TestEndOfStreamDoesNotWaitForTheBackend(t *testing.T) {
	server := redistest.Start(t)
	t.Run("server", func(t *testing.T) {
		withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
			l := overRedis(t, server)
			endsWhileAway(t, server, l, streamServer(l, key))
		})
	})
	t.Run("client", func(t *testing.T) {
		withKeys(t, func(t *testing.T, key grpcguard.KeyFunc) {
			l := overRedis(t, server)
			endsWhileAway(t, server, l, nil, streamClient(l, key))
		})
	})
}

// endsWhileAway checks that a stream guarded by l ends at once while the server hangs, and that the lock is released when
// the server responds again.
func endsWhileAway(t *testing.T, server *redistest.Server, l *wllock.Locker, onServer []grpc.ServerOption, onClient ...grpc.DialOption) {
	t.Helper()
	other := overRedis(t, server)
	c := start(t, &service{out: func(s grpc.ServerStream) error {
		assert.NoError(t, s.SendMsg(response))
		server.Pause()
		return nil
	}}, onServer, onClient...)
	defer server.Resume()
	s, err := c.StreamingOutputCall(withKey(t.Context()), request)
	require.NoError(t, err)
	began := time.Now()
	_, err = drain(s)
	took := time.Since(began)
	require.ErrorIs(t, err, io.EOF)
	testscope.InTime(t, took, time.Second, "the end of the stream")
	t.Logf("the end came after %v", took.Round(time.Microsecond))

	server.Resume()
	require.NoError(t, l.Close(t.Context()), "waits for the release")
	require.NoError(t, other.Do(t.Context(), "product", secret, func(context.Context) error { return nil }, wllock.NoWait()))
}
