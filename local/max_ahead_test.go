package local_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

// Exactly MaxAhead callers wait, however many arrive at the same moment; the others are refused at once.
func TestMaxAheadIsExact(t *testing.T) {
	for range 50 {
		q := newQueue()
		var holder local.Turn[*baton]
		require.NoError(t, q.Enter(t.Context(), &holder, "k", exclusive))
		const callers, maxAhead = 64, 7
		var all sync.WaitGroup
		var hopeless atomic.Int64
		for range callers {
			all.Go(func() {
				var turn local.Turn[*baton]
				err := q.Enter(t.Context(), &turn, "k", ask{Limit: local.Unlimited, MaxAhead: maxAhead})
				if err == nil {
					turn.Leave()
					return
				}
				if err == local.ErrHopeless && hopeless.Add(1) == callers-maxAhead {
					holder.Leave() // all have decided
				}
			})
		}
		all.Wait()
		require.EqualValues(t, callers-maxAhead, hopeless.Load())
		require.ErrorIs(t, local.ErrHopeless, local.ErrQueueFull)
		requireUnused(t, q)
	}
}
