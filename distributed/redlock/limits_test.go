package redlock

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testlocker"
)

// Clients may limit their connections. Questions wait for one then; no caller is told that the servers are away, and no held
// lock is lost.
func TestTheClientsLimitsAreBorne(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	testlocker.Crowd(t, with(t, s.connect(func(_ int, o *redis.Options) { o.MaxActiveConns = 1 })))
}

// Permits are refused before any server is asked.
func TestPermitsAreRefused(t *testing.T) {
	t.Parallel()
	b, err := Open("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3") // nobody listens there
	require.NoError(t, err)
	l, err := wllock.New("shop", b, wllock.WithOwnedBackend())
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	err = l.Do(t.Context(), "partner", "acme", func(context.Context) error { return nil }, wllock.Permits(2))
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "permits (a limit of 2 leases): unsupported operation by this backend")
}
