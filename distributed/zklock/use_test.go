package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

const (
	// ttl is that of leases in tests of faults: short, so that they end soon, and long enough for a busy machine.
	ttl = 4 * time.Second
	// long is that of leases that must not end.
	long = 10 * time.Minute
	// patience is how long a test waits for what should happen soon. Only a test that fails waits so long.
	patience = 30 * time.Second
)

// asker makes requests for a key.
type asker struct {
	t   *testing.T
	b   *Backend
	key string
}

func (a asker) enter(instance string, change ...func(*distributed.Request)) (distributed.Lease, distributed.Place) {
	a.t.Helper()
	l, p, err := a.try(instance, change...)
	require.NoError(a.t, err)
	return l, p
}

// try enters, as often as it takes to open a session: on a busy machine that may be long.
func (a asker) try(instance string, change ...func(*distributed.Request)) (distributed.Lease, distributed.Place, error) {
	a.t.Helper()
	req := distributed.Request{Key: a.key, Instance: instance, TTL: ttl}
	for _, f := range change {
		f(&req)
	}
	l, p, err := a.b.Enter(a.t.Context(), req)
	for start := time.Now(); errors.Is(err, distributed.ErrUnreached) && time.Since(start) < patience; {
		l, p, err = a.b.Enter(a.t.Context(), req)
	}
	return l, p, err
}

func (a asker) lease(instance string, change ...func(*distributed.Request)) distributed.Lease {
	a.t.Helper()
	l, p := a.enter(instance, change...)
	require.NotNil(a.t, l, "queued: %v", p != nil)
	return l
}

func (a asker) place(instance string, change ...func(*distributed.Request)) distributed.Place {
	a.t.Helper()
	_, p := a.enter(instance, change...)
	require.NotNil(a.t, p, "a lease, where a place was expected")
	return p
}

func shared(r *distributed.Request) { r.Mode = distributed.Shared }

func lasting(d time.Duration) func(*distributed.Request) {
	return func(r *distributed.Request) { r.TTL = d }
}

// claimOf is that of a lease or a place.
func claimOf(x any) *claim { return &driver.AttemptOf[claim](x).Wire }

// granted waits for the lease of a place; nil: the place was lost.
func granted(t *testing.T, p distributed.Place) distributed.Lease {
	t.Helper()
	select {
	case l := <-p.Granted():
		return l
	case <-time.After(patience):
		t.Fatal("neither granted nor lost")
		return nil
	}
}

func lost(t *testing.T, l distributed.Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(patience):
		t.Fatal("a lease was not reported lost")
	}
}

func release(t *testing.T, l distributed.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, l.Release(ctx))
}

// claimed waits until the lease lasts for as long as its session.
func claimed(t *testing.T, l distributed.Lease) {
	t.Helper()
	window := l.Until()
	require.Eventually(t, func() bool { return l.Until().After(window) }, patience, time.Millisecond)
}

func fence(t *testing.T, l distributed.Lease) uint64 {
	t.Helper()
	n, ok := l.NextFence()
	require.True(t, ok)
	return n
}

// ready waits until the backend answers.
func ready(t *testing.T, b *Backend) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return b.Ping(ctx) == nil
	}, patience, 10*time.Millisecond)
}
