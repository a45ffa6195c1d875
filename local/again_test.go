package local_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

// together returns n sharers that hold the turn side by side.
func together(q *queue, key string, n int) []*caller {
	all := arrive(q, key, shared)
	all[0].shares()
	for range n - 1 {
		all = append(all, arrives(q, key, shared))
	}
	return all
}

func TestAgain(t *testing.T) {
	bubble(t, "a lone holder gets it back at once, no longer open", func(t *testing.T, q *queue) {
		a := together(q, "k", 1)[0]
		a.again(shared)
		require.Equal(t, "in busy", states(a, arrives(q, "k", ask{Shared: true, NoWait: true})))
		require.True(t, a.leaves())
		requireUnused(t, q)
	})
	bubble(t, "it returns alone when the other holders have left", func(t *testing.T, q *queue) {
		all := together(q, "k", 3)
		all[1].again(shared)
		require.Equal(t, "in waiting in", states(all...))
		all[0].passes()
		require.Equal(t, "out waiting in", states(all...))
		all[2].leaves()
		require.Equal(t, "out in out", states(all...))
		require.Equal(t, "waiting", states(arrives(q, "k", shared)), "no caller enters before it shares")
	})
	bubble(t, "it waits at the head, and no caller enters meanwhile", func(t *testing.T, q *queue) {
		all := together(q, "k", 2)
		writer := arrives(q, "k", exclusive)
		all[1].again(shared)
		reader := arrives(q, "k", shared)
		all[0].passes()
		require.Equal(t, "in waiting waiting", states(all[1], writer, reader))
		all[1].passes()
		require.Equal(t, "in waiting", states(writer, reader))
		writer.passes()
		require.Equal(t, "in", states(reader))
	})
	bubble(t, "another holder that shares lets it in", func(t *testing.T, q *queue) {
		all := together(q, "k", 3)
		all[1].again(shared)
		all[2].again(shared)
		all[0].passes()
		require.Equal(t, "waiting in", states(all[1], all[2]), "one of them is first")
		all[2].shares()
		require.Equal(t, "in in", states(all[1], all[2]))
	})
	bubble(t, "another holder that reopens lets it in", func(t *testing.T, q *queue) {
		all := together(q, "k", 3)
		all[1].again(shared)
		all[0].turn.Reopen()
		synctest.Wait()
		require.Equal(t, "in in in", states(all...))
		require.Equal(t, "in", states(arrives(q, "k", shared)))
	})
	bubble(t, "it does not wait when another holder has reopened before", func(t *testing.T, q *queue) {
		all := together(q, "k", 2)
		all[0].turn.Reopen()
		all[1].again(shared)
		require.Equal(t, "in in", states(all...))
		all[1].again(shared)
		require.Equal(t, "in waiting", states(all...), "once")
	})
	bubble(t, "it gives up, and the other holders go on", func(t *testing.T, q *queue) {
		all := together(q, "k", 2)
		waiting := arrives(q, "k", shared)
		require.Equal(t, "in", states(waiting))
		all[1].again(within(time.Second, shared))
		waiting.again(shared)
		all[0].shares() // lets the waiting ones in
		all[1].again(within(time.Second, shared))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		waiting.again(shared)
		waiting.givesUp()
		require.Equal(t, "in timeout canceled", states(all[0], all[1], waiting))
		require.Equal(t, local.Kept, all[0].passes())
		all[0].leaves()
		requireUnused(t, q)
	})
	bubble(t, "a caller that does not want to wait loses the turn", func(t *testing.T, q *queue) {
		all := together(q, "k", 2)
		all[1].again(ask{Shared: true, NoWait: true})
		require.Equal(t, "in busy", states(all...))
		require.Equal(t, local.Taken, all[1].turn.Pass())
		require.Equal(t, local.Kept, all[0].passes())
	})
	bubble(t, "it is not refused when the queue is full, but counts as a waiter", func(t *testing.T, q *queue) {
		all := together(q, "k", 2)
		all[1].again(ask{Shared: true, Limit: 0})
		require.Equal(t, "waiting full", states(all[1], arrives(q, "k", ask{Limit: 1})))
		all[0].passes()
		require.Equal(t, "in", states(all[1]))
	})
	bubble(t, "a closed queue refuses it, unless it is alone", func(t *testing.T, q *queue) {
		all := together(q, "k", 3)
		all[2].again(shared)
		q.Close()
		synctest.Wait()
		all[1].again(shared)
		all[0].again(shared)
		require.Equal(t, "in closed closed", states(all...))
		require.False(t, drained(q))
		all[0].leaves()
		require.True(t, drained(q))
	})
	bubble(t, "a turn that was taken is refused with closed", func(t *testing.T, q *queue) {
		a := together(q, "k", 1)[0]
		a.leaves()
		a.again(shared)
		require.Equal(t, "closed", states(a))
	})
}
