package zklock

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/zktest"
)

// looked has a holder look once, and waits until it has.
func looked(t *testing.T, l distributed.Lease) {
	t.Helper()
	rested(t, l)
	claimOf(l).a.Poke()
	rested(t, l)
}

// rested waits until no look is under way.
func rested(t *testing.T, l distributed.Lease) {
	t.Helper()
	require.Eventually(t, func() bool { return !claimOf(l).a.Looking() }, patience, time.Millisecond)
}

// onlyEvents has nothing but an event make the holder look.
func onlyEvents(l distributed.Lease) {
	claimOf(l).a.LookIn(time.Hour)
}

// The client library keeps a channel for each watch that it sets, until something happens to the node.
func TestALockThatIsHeldForLongSetsOneWatch(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	l := asker(t, b, "k").Lease("a", lasting(long))
	for range 10 {
		looked(t, l)
	}
	require.Equal(t, int64(1), b.counts.watches.Load())
	p := asker(t, b, "k").Place("b", lasting(long)) // and that one works
	require.Eventually(t, l.Contended, patience, time.Millisecond)
	release(t, l)
	release(t, granted(t, p))
}

// A writer that has left leaves the readers as they were: they hear of it at once, and not at their next look.
func TestALeaseIsNotContendedAfterTheWaiterHasLeft(t *testing.T) {
	t.Parallel()
	root := newRoot()
	b, other := open(t, zktest.Shared(t).Addr, root), open(t, zktest.Shared(t).Addr, root)
	for name, change := range map[string]func(*distributed.Request){"reader": shared, "permit": permits(2)} {
		l := asker(t, b, name).Lease("a", change, lasting(long))
		for range 2 {
			looked(t, l) // which sets the watch that tells of the waiter, once
			p := asker(t, other, name).Place("b", lasting(long))
			require.Eventually(t, l.Contended, patience, time.Millisecond)
			looked(t, l)
			onlyEvents(l)
			require.NoError(t, p.Leave(t.Context()))
			require.Eventually(t, func() bool { return !l.Contended() }, patience, time.Millisecond)
		}
		release(t, l)
	}
}

// The right to delete is taken away: the release says so, and goes on when it is given back.
func TestAReleaseThatIsRefusedSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	conn, ask := plainConn(t, zktest.Shared(t).Addr), asker(t, b, "k")
	l, async := ask.Lease("a", shared, lasting(long)), ask.Lease("b", shared, lasting(long))
	p := ask.Place("c", lasting(long))
	_, err := conn.SetACL(b.dirOf("k"), zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermAdmin), -1)
	require.NoError(t, err)

	answers := make(chan error, 2)
	async.(distributed.AsyncLease).Watch(answerWatcher{answers}, async)
	require.False(t, async.(distributed.AsyncLease).StartRelease())
	require.Eventually(t, func() bool { return len(answers) > 0 }, patience, time.Millisecond)
	for _, err := range []error{l.Release(t.Context()), l.Release(t.Context()), <-answers, p.Leave(t.Context())} {
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, b.dirOf("k"))
	}
	_, _, err = ask.Try("a", shared, lasting(long), func(r *distributed.Request) { r.Prev = l })
	require.ErrorIs(t, err, zk.ErrNoAuth)
	_, err = conn.SetACL(b.dirOf("k"), zk.WorldACL(zk.PermAll), -1)
	require.NoError(t, err)
	next, p := ask.Enter("d", lasting(long))
	if p != nil {
		next = granted(t, p)
	}
	release(t, next)
	require.Empty(t, answers, "a second answer")
}

// answerWatcher is a Watcher that passes on the answer to a release.
type answerWatcher struct{ answers chan error }

func (answerWatcher) LeaseLost(distributed.Lease)                    {}
func (answerWatcher) LeaseContended(distributed.Lease)               {}
func (w answerWatcher) LeaseReleased(_ distributed.Lease, err error) { w.answers <- err }

// A break that found a holder ends no later one, also if the sequence has begun anew with another node of the key.
func TestABreakEndsNobodyBelowANewNodeOfTheKey(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	ask, conn := asker(t, b, "k"), plainConn(t, zktest.Shared(t).Addr)
	for name, change := range map[string]func(*distributed.Request){"a writer": func(*distributed.Request) {}, "a reader": shared} {
		l := ask.Lease("a", change, lasting(long))
		found, err := b.Inspect(t.Context(), "k")
		require.NoError(t, err)
		release(t, l)
		require.Eventually(t, func() bool { // or the server has done it
			err := conn.Delete(b.dirOf("k"), -1)
			return err == nil || errors.Is(err, zk.ErrNoNode)
		}, patience, time.Millisecond)
		l = ask.Lease("b", change, lasting(long))
		_, err = b.Break(t.Context(), found, "somebody", "a test")
		require.ErrorIs(t, err, distributed.ErrNotHeld, name)
		require.True(t, l.Healthy())
		release(t, l)
	}
}

// An instance may have any name: its request is never taken for a lease that was downgraded.
func TestNoInstanceLooksDowngraded(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	for _, name := range []string{"shared", "x", " "} {
		ask := asker(t, b, "k-"+name)
		l := ask.Lease(name, lasting(long))
		p := ask.Place("reader", shared, lasting(long))
		require.Empty(t, p.Granted())
		_, _, err := ask.Try("reader", shared, func(r *distributed.Request) { r.NoWait = true })
		require.ErrorIs(t, err, distributed.ErrHeld)
		release(t, l)
		release(t, granted(t, p))
	}
}
