package stack_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/internal/redistest"
)

// servers starts n of Redis.
func servers(t *testing.T, n int) []*redistest.Server {
	all := make([]*redistest.Server, n)
	for i := range all {
		all[i] = redistest.Start(t)
	}
	return all
}

// openRedlock opens a backend with fences on servers that were never used.
func openRedlock(t *testing.T, all []*redistest.Server) *redlock.Backend {
	var clients []redis.UniversalClient
	for _, s := range all {
		clients = append(clients, s.Client())
	}
	b, err := redlock.New(clients, redlock.WithQuorumFences())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Probe(t.Context(), distributed.Probe{Key: "shop:", TTL: time.Second})) // so that it knows the system
	require.NoError(t, b.Vouch(t.Context()))
	return b
}
