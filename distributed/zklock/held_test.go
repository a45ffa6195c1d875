package zklock

import (
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
	a := claimOf(l).a
	rested(t, a)
	a.Poke()
	rested(t, a)
}

// rested waits until no look is under way.
func rested(t *testing.T, a interface{ Looking() bool }) {
	t.Helper()
	require.Eventually(t, func() bool { return !a.Looking() }, patience, time.Millisecond)
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
	async.Watch(answerWatcher{answers}, async)
	require.False(t, async.StartRelease())
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

func (answerWatcher) LeaseLost(distributed.Lease)                      {}
func (answerWatcher) LeaseContended(distributed.Lease)                 {}
func (answerWatcher) LeaseRenewed(distributed.Lease, time.Time, error) {}
func (w answerWatcher) LeaseReleased(_ distributed.Lease, err error)   { w.answers <- err }

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
