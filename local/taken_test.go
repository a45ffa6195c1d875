package local_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/local"
)

// A function that returns late, after its turn was taken, changes nothing for later holders.
func TestTakenTurnChangesNothing(t *testing.T) {
	late := func(t *testing.T, c *caller) {
		require.Equal(t, local.Taken, c.turn.Pass())
		require.False(t, c.turn.Leave())
		c.turn.Share()
		c.turn.Pin()
		synctest.Wait()
	}
	bubble(t, "while others hold and await it", func(t *testing.T, q *queue) {
		all := arrive(q, "k", shared, exclusive, shared, exclusive)
		all[0].turn.Pass()
		synctest.Wait()
		late(t, all[0])
		require.Equal(t, "in waiting waiting", states(all[1:]...))
		all[1].leaves()
		late(t, all[1])
		require.Equal(t, "in waiting", states(all[2:]...))
		end(q, all[2])
		requireUnused(t, q)
	})
	bubble(t, "when the key is no longer in use", func(t *testing.T, q *queue) {
		c := arrives(q, "k", exclusive)
		c.leaves()
		late(t, c)
		requireUnused(t, q)
		other := arrives(q, "k", exclusive) // may have the same entry
		late(t, c)
		require.Equal(t, "in busy", states(other, arrives(q, "k", noWait)))
		other.leaves()
		requireUnused(t, q)
	})
	bubble(t, "of a caller that was refused or gave up", func(t *testing.T, q *queue) {
		all := arrive(q, "k", exclusive, noWait, exclusive)
		all[2].givesUp()
		late(t, all[1])
		late(t, all[2])
		late(t, new(caller))
		require.Equal(t, "in busy", states(all[0], arrives(q, "k", noWait)))
	})
}

func TestOneOfTwoLeaversWins(t *testing.T) {
	q := newQueue()
	for range 2000 {
		var turn local.Turn[*baton]
		var won atomic.Int32
		var both sync.WaitGroup
		require.NoError(t, q.Enter(t.Context(), &turn, "k", exclusive))
		for range 2 {
			both.Go(func() {
				if turn.Leave() {
					won.Add(1)
				}
			})
		}
		both.Wait()
		require.EqualValues(t, 1, won.Load())
	}
	requireUnused(t, q)
}

// The end of a wait races with a grant: the waiter is to give up, and the turn is passed before it has. The turn is not
// lost: either the waiter gets it, or the holder keeps it.
func TestGrantMeetsEndOfWait(t *testing.T) {
	const times = 3000
	r := testseed.Rand(t)
	for name, wait := range map[string]func(t *testing.T) (context.Context, ask, func()){
		"cancel": func(t *testing.T) (context.Context, ask, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			return ctx, exclusive, cancel
		},
		"deadline": func(t *testing.T) (context.Context, ask, func()) {
			a := within(50*time.Microsecond<<min(r.IntN(7), r.IntN(7)), exclusive) // on a busy machine the short ones end before the waiter is there
			pass := a.Deadline.Add(-time.Duration(r.IntN(10)) * time.Microsecond)
			return t.Context(), a, func() {
				for time.Now().Before(pass) {
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, arrived := newQueue(), 0
			for range times {
				ctx, a, ends := wait(t)
				if meet(t, q, ctx, a, ends) {
					arrived++
				}
				requireUnused(t, q)
			}
			t.Logf("the grant came first %d times in %d", arrived, times)
			require.Positive(t, arrived, "they have not raced")
		})
	}
}

// meet reports whether a waiter whose wait ends while the turn is passed got the turn.
func meet(t *testing.T, q *queue, ctx context.Context, a ask, ends func()) bool {
	var holder, turn local.Turn[*baton]
	require.NoError(t, q.Enter(t.Context(), &holder, "k", exclusive))
	answer := make(chan error, 1)
	go func() { answer <- q.Enter(ctx, &turn, "k", a) }()
	for _, waiting := inUse(q); waiting == 0 && len(answer) == 0; _, waiting = inUse(q) {
	}
	ends()
	outcome := holder.Pass()
	err := <-answer
	if outcome == local.Kept {
		require.Error(t, err, "there was no waiter to hand the turn to")
		require.True(t, holder.Leave())
		return false
	}
	require.NoError(t, err, "the turn was handed over, so it must have arrived")
	require.True(t, turn.Leave())
	return true
}
