package memlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

const ttl = 6 * time.Second

func start(t *testing.T) *memlock.Backend {
	t.Helper()
	b := memlock.New()
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func enter(t *testing.T, b *memlock.Backend, instance string) (distributed.Lease, distributed.Place) {
	t.Helper()
	l, p, err := b.Enter(context.Background(), distributed.Request{Key: "k", Instance: instance, TTL: ttl})
	require.NoError(t, err)
	return l, p
}

// grantedInTheDark returns a place that the server grants while its client is cut off, and waits until it has.
func grantedInTheDark(t *testing.T, b *memlock.Backend) distributed.Place {
	l, _ := enter(t, b, "a")
	_, p := enter(t, b, "b")
	l.Abandon()
	b.Partition(true)
	time.Sleep(ttl / 2)
	synctest.Wait()
	assert.Empty(t, p.Granted())
	return p
}

func TestGrantDuringPartitionIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		granted := time.Now().Add(ttl / 2)
		p := grantedInTheDark(t, b)
		time.Sleep(ttl / 4)
		b.Partition(false)
		l := <-p.Granted()
		assert.Contains(t, []time.Time{
			distributed.Validity(granted, distributed.ClaimWindow(ttl)), distributed.Validity(time.Now(), ttl), // if its claim was quicker
		}, l.Until(), "it counts from the grant")
		time.Sleep(2 * ttl)
		assert.True(t, l.Healthy(), "it has been claimed")
		assert.NoError(t, l.Release(t.Context()))
	})
}

func TestGrantDuringPartitionIsLost(t *testing.T) {
	for name, wait := range map[string]time.Duration{
		"after its window":                         ttl,
		"in the time its holder must not count on": ttl/2 - time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				p := grantedInTheDark(t, b)
				time.Sleep(wait)
				b.Partition(false)
				_, ok := <-p.Granted()
				assert.False(t, ok, "the place is lost")
				l, _ := enter(t, b, "c")
				require.NotNil(t, l)
				assert.NoError(t, l.Release(t.Context()))
			})
		})
	}
}

func TestLeaveDuringPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := grantedInTheDark(t, b)
		assert.ErrorIs(t, p.Leave(t.Context()), distributed.ErrUnavailable)
		b.Partition(false)
		assert.Empty(t, p.Granted())
		l, _ := enter(t, b, "c")
		require.NotNil(t, l, "healing released the grant")
		assert.NoError(t, l.Release(t.Context()))
		assert.NoError(t, p.Leave(t.Context()))
	})
}

// watcher calls back from within the notifications.
type watcher struct {
	lost, contended func()
	released        chan error
}

func (w *watcher) LeaseLost(distributed.Lease)                    { w.lost() }
func (w *watcher) LeaseContended(distributed.Lease)               { w.contended() }
func (w *watcher) LeaseReleased(_ distributed.Lease, err error)   { w.released <- err }
func (*watcher) LeaseRenewed(distributed.Lease, time.Time, error) {}

func TestWatcherMayCallBack(t *testing.T) {
	b := start(t)
	l, _ := enter(t, b, "a")
	w := &watcher{released: make(chan error, 1)}
	w.contended = func() {
		if l.StartRelease() {
			w.released <- nil
		}
	}
	l.Watch(w, l)
	_, p := enter(t, b, "b")
	assert.Len(t, p.Granted(), 1, "released before Enter has returned")
	assert.NoError(t, <-w.released)
	assert.NoError(t, p.Leave(t.Context()))
}

// The record is there before a holder learns of the Break.
func TestTheHolderMayAskWhoBrokeItsLease(t *testing.T) {
	b := start(t)
	l, _ := enter(t, b, "a")
	var then distributed.Inspection
	l.Watch(&watcher{lost: func() { then, _ = b.Inspect(context.Background(), "k") }}, l)
	found, err := b.Inspect(t.Context(), "k")
	require.NoError(t, err)
	_, err = b.Break(t.Context(), found, "ops", "stuck")
	require.NoError(t, err)
	require.NotNil(t, then.Broken)
	assert.Equal(t, "ops", then.Broken.By)
}

func TestTTLTooShort(t *testing.T) {
	b := start(t)
	_, _, err := b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "a", TTL: distributed.MinTTL - 1})
	assert.ErrorContains(t, err, "lease TTL")
}

// A restarted program continues with greater fences, since a store remembers them.
func TestFencesSurviveARestart(t *testing.T) {
	last := uint64(0)
	for range 3 {
		b := memlock.New()
		for range 100 {
			l, _ := enter(t, b, "a")
			for range 10 {
				n, ok := l.NextFence()
				require.True(t, ok)
				require.Greater(t, n, last)
				last = n
			}
			require.NoError(t, l.Release(t.Context()))
		}
		require.NoError(t, b.Close())
	}
}

// Nobody takes fences between a writer's and those after its downgrade, so its block is not lost: the fences of a lock that
// changes hands all the time do not run ahead of the clock.
func TestDowngradeReturnsFences(t *testing.T) {
	b := start(t)
	var first, last uint64
	for i := range 100 {
		l, _ := enter(t, b, "a")
		last, _ = l.NextFence()
		if i == 0 {
			first = last
		}
		require.NoError(t, l.Downgrade(t.Context()))
		require.NoError(t, l.Release(t.Context()))
	}
	require.LessOrEqual(t, last-first, uint64(300))
}

// A lease whose last waiter has left in a partition is not contended any more when that is healed.
func TestWaiterThatLeftInAPartitionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		l, _ := enter(t, b, "a")
		_, p := enter(t, b, "b")
		require.True(t, l.Contended())
		b.Partition(true)
		require.ErrorIs(t, p.Leave(t.Context()), distributed.ErrUnavailable)
		require.True(t, l.Contended())
		b.Partition(false)
		require.False(t, l.Contended())
		require.NoError(t, l.Release(t.Context()))
	})
}

// A holder's own instance, which has queued beside its lease, is not another one that waits.
func TestOwnPlaceIsNoContention(t *testing.T) {
	b := start(t)
	l, _ := enter(t, b, "a")
	_, own := enter(t, b, "a")
	require.False(t, l.Contended())
	_, other := enter(t, b, "b")
	require.True(t, l.Contended())
	require.NoError(t, other.Leave(t.Context()))
	require.False(t, l.Contended())
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, own.Leave(t.Context()))
}
