package wllock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

// miser is a backend whose leases have no fences when it says so, until they are refilled, which may take a while.
type miser struct {
	distributed.Backend

	mu    sync.Mutex
	empty bool
	gate  chan struct{} // nil: a refill takes no time
}

func (m *miser) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := m.Backend.Enter(ctx, req)
	switch {
	case l != nil:
		return m.wrap(l), nil, err
	case p != nil:
		return nil, wrap.Place(p, m.wrap), err
	}
	return nil, nil, err
}

func (m *miser) wrap(l distributed.Lease) distributed.Lease { return &miserLease{l, m} }

// runsOut leaves all leases without fences; a refill waits for the gate, if there is one.
func (m *miser) runsOut(gate chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.empty, m.gate = true, gate
}

type miserLease struct {
	distributed.Lease
	m *miser
}

func (l *miserLease) Unwrap() distributed.Lease { return l.Lease }

func (l *miserLease) NextFence() (uint64, bool) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.empty {
		return 0, false
	}
	return l.Lease.NextFence()
}

func (l *miserLease) Refill(ctx context.Context) error {
	l.m.mu.Lock()
	gate := l.m.gate
	l.m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.empty = false
	return l.Lease.Refill(ctx)
}

// scene is a process with a permit, another process with the other one, a caller that waits for one at the backend, and one
// behind it in line.
func scene(t *testing.T) (m *miser, b *memlock.Backend, l *wllock.Locker, holder, elsewhere, waits, behind *guest) {
	b = memlock.New()
	m = &miser{Backend: b}
	l = lockerOn(t, m)
	holder, elsewhere = comes(t, l, wllock.Permits(2)), comes(t, lockerOn(t, b), wllock.Permits(2))
	waits, behind = comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))
	require.Equal(t, []string{"in", "in", "waiting", "waiting"}, are(holder, elsewhere, waits, behind))
	return
}

// The lease that a fellow passes may turn out not to serve: the caller waits on in its place, and the lane goes to the next, who
// does what it takes.
func TestPermitThatIsPassedAndDoesNotServe(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		m, b, l, holder, elsewhere, waits, behind := scene(t)
		m.runsOut(nil)
		leaves(holder)
		require.Equal(t, []string{"waiting", "in"}, are(waits, behind))
		require.True(t, behind.held.Handoff())
		leaves(elsewhere)
		require.Equal(t, "in", waits.state(), "it has kept its place")
		leaves(waits, behind)
		nothingLeft(t, b, l)
	})
}

// A permit that is passed to a caller that has just got one of its own goes on to the next in line; so it does if the caller has just
// given up, or the backend panics.
func TestPermitThatIsPassedTooLate(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		m, b, l, holder, elsewhere, waits, behind := scene(t)
		gate := make(chan struct{})
		m.runsOut(gate)
		leaves(elsewhere) // its permit goes to the one that waits, which has to fetch a fence
		require.Equal(t, "waiting", waits.state())
		close(holder.leave)
		require.Equal(t, []string{"out", "waiting", "waiting"}, are(holder, waits, behind))
		close(gate)
		require.Equal(t, []string{"in", "in"}, are(waits, behind))
		require.False(t, waits.held.Handoff())
		require.True(t, behind.held.Handoff())
		leaves(waits, behind)
		nothingLeft(t, b, l)
	})
}

// A lease that has served its budget is not passed to a caller that waits at the backend: it would lose its place with it.
func TestPermitThatMayNotBeHandedOnIsNotPassed(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l := lockerOn(t, b, wllock.WithMaxHandoffs(0))
		holder, elsewhere := comes(t, l, wllock.Permits(2)), comes(t, lockerOn(t, b), wllock.Permits(2))
		waits, behind, later := comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2)), comes(t, lockerOn(t, b), wllock.Permits(2))
		leaves(holder)
		require.Equal(t, []string{"in", "waiting", "waiting"}, are(waits, behind, later), "by its place")
		require.False(t, waits.held.Handoff())
		leaves(elsewhere)
		require.Equal(t, []string{"waiting", "in"}, are(behind, later), "who asked before it had a lane")
		leaves(waits)
		require.Equal(t, "in", behind.state())
		leaves(behind, later)
		nothingLeft(t, b, l)
	})
}
