package local_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

func TestEnter(t *testing.T) {
	bubble(t, "a free key is acquired at once, and takes no memory afterwards", func(t *testing.T, q *queue) {
		for _, a := range []ask{exclusive, shared, noWait, {Limit: 0}, within(-time.Second, exclusive)} {
			c := arrives(q, "k", a)
			require.Equal(t, "in", states(c))
			assert.Equal(t, "k", c.turn.Baton().key)
			assert.False(t, c.turn.Queued())
			require.True(t, c.leaves())
			requireUnused(t, q)
		}
	})
	bubble(t, "keys do not wait for each other", func(t *testing.T, q *queue) {
		assert.Equal(t, "in in in", states(arrives(q, "a", exclusive), arrives(q, "b", exclusive), arrives(q, "c", shared)))
	})
	bubble(t, "a caller that does not want to wait is refused with busy", func(t *testing.T, q *queue) {
		assert.Equal(t, "in busy busy", states(arrive(q, "k", exclusive, noWait, ask{NoWait: true, Shared: true})...))
	})
	bubble(t, "a turn can be reused", func(t *testing.T, q *queue) {
		all := arrive(q, "k", exclusive, exclusive)
		all[0].leaves()
		again := &all[1].turn
		require.True(t, again.Queued())
		again.Leave()
		require.NoError(t, q.Enter(t.Context(), again, "k", shared))
		require.False(t, again.Queued(), "it has not waited this time")
		require.True(t, again.Leave())
	})
	bubble(t, "the baton stays with the key as long as it is in use", func(t *testing.T, q *queue) {
		all := arrive(q, "k", exclusive, exclusive)
		first := all[0].turn.Baton()
		all[0].passes()
		assert.Same(t, first, all[1].turn.Baton())
		assert.True(t, all[1].turn.Queued())
		all[1].leaves()
		assert.NotSame(t, first, arrives(q, "k", exclusive).turn.Baton())
	})
}

func TestLimit(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		bubble(t, fmt.Sprintf("%d may wait and no more", n), func(t *testing.T, q *queue) {
			arrives(q, "k", exclusive)
			for range n {
				require.Equal(t, "waiting", states(arrives(q, "k", ask{Limit: n})))
			}
			require.Equal(t, "full full", states(arrive(q, "k", ask{Limit: n}, ask{Limit: n, Shared: true})...))
			require.Equal(t, "waiting", states(arrives(q, "k", ask{Limit: n + 1})), "each caller has its own limit")
		})
	}
	bubble(t, "a waiter that gives up makes room for one", func(t *testing.T, q *queue) {
		limit := ask{Limit: 2}
		all := arrive(q, "k", limit, limit, limit, limit)
		require.Equal(t, "in waiting waiting full", states(all...))
		all[1].givesUp()
		require.Equal(t, "waiting full", states(arrive(q, "k", limit, limit)...))
	})
	bubble(t, "unlimited", func(t *testing.T, q *queue) {
		arrives(q, "k", exclusive)
		for range 3000 {
			go q.Enter(t.Context(), new(local.Turn[*baton]), "k", exclusive)
		}
		synctest.Wait()
		_, waiting := inUse(q)
		assert.Equal(t, 3000, waiting)
	})
}

func TestWaitingEnds(t *testing.T) {
	bubble(t, "with the caller's context and that context's error", func(t *testing.T, q *queue) {
		holder := arrives(q, "k", exclusive)
		a := arrives(q, "k", exclusive)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.Equal(t, context.DeadlineExceeded, q.Enter(ctx, new(local.Turn[*baton]), "k", exclusive))
		require.Equal(t, time.Second, time.Since(start))
		a.givesUp()
		require.Equal(t, "in canceled", states(holder, a))
		require.Equal(t, local.Kept, holder.passes(), "no waiter is left")
	})
	bubble(t, "at the deadline", func(t *testing.T, q *queue) {
		arrives(q, "k", exclusive)
		start := time.Now()
		require.Equal(t, local.ErrTimeout, q.Enter(t.Context(), new(local.Turn[*baton]), "k", within(time.Second, exclusive)))
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, "timeout", states(arrives(q, "k", within(-time.Second, exclusive))))
		require.Equal(t, time.Second, time.Since(start))
	})
	bubble(t, "and wakes no other waiter, wherever it stood", func(t *testing.T, q *queue) {
		for gone := 1; gone <= 3; gone++ {
			all := arrive(q, "k", exclusive, exclusive, exclusive, exclusive)
			all[gone].givesUp()
			all[gone].state = "out"
			for i, c := range all {
				if i == gone {
					continue
				}
				require.Equal(t, "in", states(c), i)
				for _, later := range all[i+1:] {
					require.NotEqual(t, "in", states(later))
				}
				if c.passes() == local.Kept {
					c.leaves()
				}
			}
			require.Equal(t, "out out out out", states(all...))
			requireUnused(t, q)
		}
	})
}

func TestWaitersAreCounted(t *testing.T) {
	bubble(t, "", func(t *testing.T, q *queue) {
		n := new(atomic.Int64)
		counted := ask{Limit: 3, Waiting: n}
		all := arrive(q, "k", counted, counted, within(time.Second, counted), counted, counted)
		require.Equal(t, "in waiting waiting waiting full", states(all...))
		require.EqualValues(t, 3, n.Load())
		all[1].givesUp()
		require.EqualValues(t, 2, n.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, n.Load())
		all[0].passes()
		require.Equal(t, "out canceled timeout in full", states(all...))
		require.Zero(t, n.Load())
		other := arrives(q, "k", counted)
		q.Close()
		synctest.Wait()
		require.Equal(t, "closed", states(other))
		require.Zero(t, n.Load())
	})
}

func TestEachSeesAllKeys(t *testing.T) {
	bubble(t, "", func(t *testing.T, q *queue) {
		want, got := map[string]int{}, map[string]int{}
		for i := range 200 {
			key := fmt.Sprint(i)
			want[key] = i % 3
			for range 1 + want[key] {
				arrives(q, key, exclusive)
			}
		}
		q.Each(func(key string, _ int, b *baton, waiting int) {
			assert.Equal(t, key, b.key)
			got[key] = waiting
		})
		assert.Equal(t, want, got)
	})
}
