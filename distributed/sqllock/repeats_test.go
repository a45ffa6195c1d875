package sqllock

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// loseOnce has the first statement that contains a word not carried out, or not answered.
func (w *wire) loseOnce(word string, before bool) (lost func() bool) {
	var done atomic.Bool // statements pass at the same time
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = func(text string) (bool, bool) {
		if !strings.Contains(text, word) || !done.CompareAndSwap(false, true) {
			return false, false
		}
		return before, !before
	}
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lose = nil
		return done.Load()
	}
}

// A copy of the process, as one that is restored from a snapshot, has its name and all it knows. What it asks for is a request of its
// own, and no repeat: neither at once, nor in the queue.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, twin := d.backend(t), d.backend(t)
		twin.process = b.process
		l := enter(t, b, "key")
		_, _, err := twin.Enter(t.Context(), distributed.Request{Key: "key", Instance: "i", TTL: time.Minute, NoWait: true})
		require.ErrorIs(t, err, distributed.ErrHeld)
		var places []distributed.Place
		for _, one := range []*Backend{b, twin} {
			_, p, err := one.Enter(t.Context(), distributed.Request{Key: "key", Instance: "i", TTL: time.Minute})
			require.NoError(t, err)
			places = append(places, p)
		}
		require.NoError(t, l.Release(t.Context()))
		l = <-places[0].Granted()
		require.Empty(t, places[1].Granted())
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, (<-places[1].Granted()).Release(t.Context()))
	})
}

// A request or an answer that is lost has one effect: the same lease, with the same fences, and nothing beside it.
func TestLostStatements(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		enter(t, b, "other") // makes the connection
		for _, before := range []bool{true, false} {
			lost := d.wire.loseOnce("wllock_locks", before)
			l := enter(t, b, "key")
			require.True(t, lost())
			fence, ok := l.NextFence()
			require.True(t, ok)

			lost = d.wire.loseOnce("wllock_locks", before)
			l2 := enter(t, b, "key", prevIs(l))
			require.True(t, lost())
			require.NoError(t, l.Release(t.Context()), "it was released by the Enter")
			next, _ := l2.NextFence()
			require.Greater(t, next, fence)
			require.Less(t, next, fence+uint64(time.Hour), "no block was lost on the way, but for the time")

			lost = d.wire.loseOnce("wllock_locks", before)
			require.NoError(t, l2.Release(t.Context()))
			require.True(t, lost())
		}
	})
}
