package wllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// probed is a backend on which no lock of one system would work, though all is well otherwise.
type probed struct {
	distributed.Backend
	asked distributed.Probe
}

var errNoRights = errors.New("no rights")

func (p *probed) Probe(_ context.Context, asked distributed.Probe) error {
	p.asked = asked
	return errNoRights
}

// Ping answers whether a lock would work: of this Locker's system, with its TTL.
func TestPingAsksWhetherALockWouldWork(t *testing.T) {
	b := &probed{Backend: memlock.New()}
	require.NoError(t, b.Ping(t.Context()))
	l := lockerOn(t, b, wllock.WithLeaseTTL(7*time.Second))
	err := l.Ping(t.Context())
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorIs(t, err, errNoRights)
	require.Equal(t, distributed.Probe{Key: "test:ping:ping", TTL: 7 * time.Second}, b.asked)
	other, _ := newLocker(t)
	require.NoError(t, other.Ping(t.Context()), "a backend that is no Prober is pinged")
}
