package wllock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

// frail is a backend whose next grants are lost as soon as somebody looks at them.
type frail struct {
	distributed.Backend
	lose atomic.Int32 // so many
}

func (f *frail) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := f.Backend.Enter(ctx, req)
	if p != nil {
		p = wrap.Place(p, f.wrap)
	}
	return l, p, err
}

func (f *frail) wrap(l distributed.Lease) distributed.Lease {
	return &frailLease{l.(distributed.AsyncLease), f}
}

type frailLease struct {
	distributed.AsyncLease
	of *frail
}

func (l *frailLease) Unwrap() distributed.Lease { return l.AsyncLease }

func (l *frailLease) Watch(w distributed.Watcher, as distributed.Lease) {
	if l.of.lose.Add(-1) >= 0 {
		_ = l.Release(context.Background())
		w.LeaseLost(as)
		return
	}
	l.AsyncLease.Watch(w, as)
}

// A lease that is lost in the moment in which a caller gets in takes its lane along, and that does not wait for a fellow's any more.
func TestPermitThatIsLostAsItIsGrantedWaitsForNoFellow(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		f := &frail{Backend: b}
		l, other := lockerOn(t, f), lockerOn(t, b)
		away := []*guest{comes(t, other, wllock.Permits(3)), comes(t, other, wllock.Permits(3)), comes(t, other, wllock.Permits(3))}
		first := comes(t, l, wllock.Permits(3))
		second, third := comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3))
		line := []*guest{comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3))}
		f.lose.Store(1)
		leaves(away[0])
		require.Equal(t, "lost", first.state())
		require.Equal(t, []string{"in", "waiting", "waiting"}, are(second, third, line[0]))
		leaves(away[1:]...)
		require.Equal(t, []string{"in", "in", "in", "waiting", "waiting"}, are(second, third, line[0], line[1], line[2]))
		leaves(second)
		require.Equal(t, []string{"in", "in", "in", "waiting"}, are(third, line[0], line[1], line[2]))
		leaves(third, line[0], line[1], line[2])
		time.Sleep(3 * ttl)
		nothingLeft(t, b, l, other)
	})
}

// A caller that needs a lease of its own is not offered one that serves others, which then would go to the line, past those that have
// waited at the backend for longer.
func TestPermitPassesAFellowThatNeedsALeaseOfItsOwn(t *testing.T) { // rules P2 and N1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other, three := lockerOn(t, b), wllock.Permits(3)
		away := comes(t, other, three, wllock.WithLockTimeMax(0))
		away2 := comes(t, other, three, wllock.WithLockTimeMax(0))
		first := comes(t, l, three)
		own, plain, line := comes(t, l, three, wllock.WithHoldAtLeast(1)), comes(t, l, three), comes(t, l, three)
		leaves(first)
		require.Equal(t, []string{"waiting", "in", "waiting"}, are(own, plain, line))
		leaves(away, away2)
		require.Equal(t, []string{"in", "in", "in"}, are(own, plain, line))
		leaves(own, plain, line)
		time.Sleep(ttl) // own stays for a moment
		nothingLeft(t, b, l, other)
	})
}
