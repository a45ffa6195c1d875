package zklock

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// An Enter that ends while its request is under way gives prev up, and the call of the library, which goes on, does not look at it
// any more (the race detector sees to that). Neither node stays.
func TestAnEnterThatEndsEarlyGivesUpPrev(t *testing.T) {
	t.Parallel()
	b, other, proxy := cutOff(t)
	ask := asker{t, b, "k"}
	l := ask.lease("a", lasting(long))
	proxy.Stall(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := b.Enter(ctx, distributed.Request{Key: "k", Instance: "a", TTL: long, Prev: l})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.Stall(false)
	next, p := asker{t, other, "k"}.enter("b", lasting(long))
	if p != nil {
		next = granted(t, p)
	}
	require.NotNil(t, next)
	release(t, next)
}

// A release that an Enter has taken over, and that is started again because the Enter has failed, is sent once, by what knows that
// the node may have gone with the Enter: that is no loss.
func TestAReleaseThatWasTakenOverIsNotSentTwice(t *testing.T) {
	t.Parallel()
	b := open(t, need(t).Addr, newRoot())
	l := asker{t, b, "k"}.lease("a").(*lease)
	l.begin(l.Stop(), false)
	for { // a release that was quicker than adopt is tried again
		l.mu.Lock()
		started := l.phase == starting
		if started {
			l.phase = adopted
		}
		l.mu.Unlock()
		if started {
			break
		}
		require.NoError(t, l.Release(t.Context()))
		l = asker{t, b, "k"}.lease("a").(*lease)
		l.begin(l.Stop(), false)
	}
	require.NoError(t, plainConn(t, server.Addr).Delete(path.Join(l.a.dir, l.a.node), -1)) // as the Enter did
	l.launch()
	require.False(t, l.claim(), "the first deletion is sent as well, and would take the missing node for a loss")
	require.NoError(t, l.wait(t.Context()))
}

// An instance may have any name: its request is never taken for a lease that was downgraded.
func TestNoInstanceLooksDowngraded(t *testing.T) {
	t.Parallel()
	b := open(t, need(t).Addr, newRoot())
	for _, name := range []string{"shared", "x", " "} {
		ask := asker{t, b, "k-" + name}
		l := ask.lease(name, lasting(long))
		p := ask.place("reader", shared, lasting(long))
		require.Empty(t, p.Granted())
		_, _, err := ask.try("reader", shared, func(r *distributed.Request) { r.NoWait = true })
		require.ErrorIs(t, err, distributed.ErrHeld)
		release(t, l)
		release(t, granted(t, p))
	}
}
