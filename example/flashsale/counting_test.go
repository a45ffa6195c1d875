package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestCountingOverMemory(t *testing.T) {
	ctx := t.Context()
	backend := memlock.New()
	defer func() { _ = backend.Close() }()
	c := &counting{Backend: backend}
	ask := distributed.Request{Key: "s:n:k", Instance: "a", TTL: leaseTTL}
	first, _, err := c.Enter(ctx, ask)
	require.NoError(t, err)
	ask.Instance = "b"
	_, place, err := c.Enter(ctx, ask)
	require.NoError(t, err)

	ask.Instance, ask.Prev = "a", first
	_, again, err := c.Enter(ctx, ask)
	require.NoError(t, err)
	second := <-place.Granted()
	require.NoError(t, second.Release(ctx))
	third := <-again.Granted()
	require.NoError(t, third.Release(ctx))
	assert.EqualValues(t, 5, c.requests.Load())
}

func TestCountingCountsRefillAndLeave(t *testing.T) {
	ctx := t.Context()
	backend := memlock.New()
	defer func() { _ = backend.Close() }()
	c := &counting{Backend: backend}
	lease, _, err := c.Enter(ctx, distributed.Request{Key: "s:n:k", Instance: "a", TTL: leaseTTL})
	require.NoError(t, err)
	require.NoError(t, lease.Refill(ctx))
	_, place, err := c.Enter(ctx, distributed.Request{Key: "s:n:k", Instance: "b", TTL: leaseTTL})
	require.NoError(t, err)
	require.NoError(t, place.Leave(ctx))
	require.NoError(t, lease.Release(ctx))
	assert.EqualValues(t, 5, c.requests.Load())
}

// What counts requests must be as good a backend as the one it counts for.
func TestCountingConforms(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Bubble: true, Open: func(locktest.TB) locktest.Service {
		b := memlock.New()
		return locktest.Service{Backend: &counting{Backend: b}, Expire: b.Expire, Cut: b.Partition}
	}})
}
