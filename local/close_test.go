package local_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

func TestClose(t *testing.T) {
	bubble(t, "drains an unused queue at once", func(t *testing.T, q *queue) {
		require.False(t, drained(q))
		q.Close()
		require.True(t, drained(q))
		q.Close()
		require.Equal(t, "closed", states(arrives(q, "k", exclusive)))
	})
	bubble(t, "ends all waits and leaves the holders alone", func(t *testing.T, q *queue) {
		all := arrive(q, "k", exclusive, exclusive, shared)
		other := together(q, "shared", 2)
		q.Close()
		synctest.Wait()
		require.Equal(t, "in closed closed in in", states(append(all, other...)...))
		require.Equal(t, "closed closed", states(arrives(q, "k", exclusive), arrives(q, "new", shared)))
		require.Equal(t, local.Kept, all[0].passes())
		all[0].leaves()
	})
	bubble(t, "drains when the last turn and the last pin are gone", func(t *testing.T, q *queue) {
		a, b := arrives(q, "a", exclusive), arrives(q, "b", exclusive)
		b.turn.Pin()
		q.Close()
		a.leaves()
		require.False(t, drained(q))
		b.leaves()
		require.False(t, drained(q), "pinned")
		var idle local.Turn[*baton]
		require.True(t, q.Idle(&idle, "b", 0), "works after Close, too")
		q.Unpin("b", 0)
		require.False(t, drained(q), "its turn is held")
		require.True(t, idle.Leave())
		require.True(t, drained(q))
	})
	bubble(t, "drains with the last Unpin", func(t *testing.T, q *queue) {
		a := arrives(q, "a", exclusive)
		a.turn.Pin()
		q.Close()
		a.leaves()
		q.Unpin("a", 0)
		require.True(t, drained(q))
	})
}

// Close while callers come and go: all of them return, and then the queue is drained.
func TestCloseWhileBusy(t *testing.T) {
	for range 30 {
		q := newQueue()
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				var turn local.Turn[*baton]
				for q.Enter(t.Context(), &turn, []string{"a", "b", "c"}[i%3], exclusive) == nil {
					if turn.Pass() == local.Kept {
						turn.Leave()
					}
				}
			})
		}
		q.Close()
		all.Wait()
		require.True(t, drained(q))
		requireUnused(t, q)
	}
}

func TestPinnedKey(t *testing.T) {
	bubble(t, "keeps its baton", func(t *testing.T, q *queue) {
		a := arrives(q, "k", exclusive)
		of := a.turn.Baton()
		a.turn.Pin()
		a.turn.Pin()
		a.leaves()
		q.Unpin("k", 0)
		b := arrives(q, "k", exclusive)
		require.Same(t, of, b.turn.Baton())
		require.False(t, b.turn.Queued(), "a pin excludes no caller")
		q.Unpin("k", 0)
		require.Same(t, of, b.turn.Baton())
		b.leaves()
		requireUnused(t, q)
	})
	bubble(t, "gives its turn to Idle only when there is no holder", func(t *testing.T, q *queue) {
		var idle local.Turn[*baton]
		require.False(t, q.Idle(&idle, "k", 0), "not in use")
		require.Equal(t, local.Taken, idle.Pass())
		a := arrives(q, "k", exclusive)
		a.turn.Pin()
		require.False(t, q.Idle(&idle, "k", 0), "it has a holder")
		b := arrives(q, "k", exclusive)
		a.passes()
		require.False(t, q.Idle(&idle, "k", 0), "it went to the next caller")
		b.leaves()
		require.True(t, q.Idle(&idle, "k", 0))
		c := arrives(q, "k", exclusive)
		require.Equal(t, "waiting", states(c), "the turn taken by Idle is held")
		require.Equal(t, local.Passed, idle.Pass())
		synctest.Wait()
		require.Equal(t, "in", states(c))
		c.leaves()
		q.Unpin("k", 0)
		requireUnused(t, q)
	})
}
