package local_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

// As many as may hope stand in line, exactly, however many come at the same moment; the others go at once.
func TestHopefulIsExact(t *testing.T) {
	for range 50 {
		q := newQueue()
		var holder local.Turn[*baton]
		require.NoError(t, q.Enter(t.Context(), &holder, "k", exclusive))
		const comers, hopeful = 64, 7
		var all sync.WaitGroup
		var hopeless atomic.Int64
		for range comers {
			all.Go(func() {
				var turn local.Turn[*baton]
				err := q.Enter(t.Context(), &turn, "k", ask{Limit: local.Unlimited, Hopeful: hopeful})
				if err == nil {
					turn.Leave()
					return
				}
				if err == local.ErrHopeless && hopeless.Add(1) == comers-hopeful {
					holder.Leave() // all have decided
				}
			})
		}
		all.Wait()
		require.EqualValues(t, comers-hopeful, hopeless.Load())
		require.ErrorIs(t, local.ErrHopeless, local.ErrQueueFull)
		requireUnused(t, q)
	}
}
