package sale

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestLinkCounts(t *testing.T) {
	ctx := t.Context()
	backend := memlock.New()
	defer func() { _ = backend.Close() }()
	c := &link{Observable: backend}
	lease, _, err := c.Enter(ctx, distributed.Request{Key: "s:n:k", Instance: "a", TTL: leaseTTL})
	require.NoError(t, err)
	require.NoError(t, lease.Refill(ctx))
	_, place, err := c.Enter(ctx, distributed.Request{Key: "s:n:k", Instance: "b", TTL: leaseTTL})
	require.NoError(t, err)
	require.NoError(t, place.Leave(ctx))
	require.NoError(t, lease.Release(ctx))
	assert.EqualValues(t, 5, c.requests.Load())
}

// What counts and delays requests must be as good a backend as the one behind it.
func TestLinkConforms(t *testing.T) {
	for name, rtt := range map[string]time.Duration{"here": 0, "far": 3 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Run(t, locktest.Fixture{Bubble: true, Open: func(locktest.TB) locktest.Service {
				b := memlock.New()
				return locktest.Service{Backend: &link{Observable: b, rtt: rtt}, Expire: b.Expire, Cut: b.Partition}
			}})
		})
	}
}

// An acquisition and a hand-over take a round trip each, and a caller that gives up leaves nothing behind.
func TestLinkDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := memlock.New()
		defer func() { _ = backend.Close() }()
		c := &link{Observable: backend, rtt: time.Millisecond}
		began := time.Now()
		ask := distributed.Request{Key: "s:n:k", Instance: "a", TTL: leaseTTL}
		lease, _, err := c.Enter(t.Context(), ask)
		require.NoError(t, err)
		assert.Equal(t, time.Millisecond, time.Since(began))
		ask.Instance = "b"
		_, place, err := c.Enter(t.Context(), ask)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		granted := <-place.Granted()
		assert.Equal(t, 3*time.Millisecond, time.Since(began))
		require.NoError(t, granted.Release(t.Context()))

		gone, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		_, _, err = c.Enter(gone, ask)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(leaseTTL)
		ask.Instance = "c"
		lease, _, err = c.Enter(t.Context(), ask)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}
