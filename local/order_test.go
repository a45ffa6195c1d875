package local_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

func TestTurnGoesToTheFirstWaiter(t *testing.T) {
	for name, hand := range map[string]func(*caller){
		"by Pass":  func(c *caller) { c.passes() },
		"by Leave": func(c *caller) { c.leaves() },
	} {
		bubble(t, name, func(t *testing.T, q *queue) {
			all := arrive(q, "k", exclusive, exclusive, shared, exclusive, shared)
			for i, c := range all[:4] {
				hand(c)
				require.Equal(t, "out", states(c))
				require.Equal(t, "in", states(all[i+1]))
				for _, later := range all[min(i+2, 4):] {
					if later != all[i+1] {
						require.Equal(t, "waiting", states(later))
					}
				}
			}
			require.Equal(t, local.Kept, all[4].passes())
			require.True(t, all[4].leaves())
			requireUnused(t, q)
		})
	}
}

func TestNobodyBarges(t *testing.T) {
	bubble(t, "before the first waiter", func(t *testing.T, q *queue) {
		all := arrive(q, "k", exclusive, exclusive)
		all[0].turn.Pass() // not waited for: the first waiter may not have woken yet
		require.Equal(t, "busy", states(arrives(q, "k", noWait)))
	})
	bubble(t, "no reader past a writer", func(t *testing.T, q *queue) {
		all := append(together(q, "k", 2), arrive(q, "k", exclusive, shared, ask{Shared: true, NoWait: true})...)
		require.Equal(t, "in in waiting waiting busy", states(all...))
	})
	bubble(t, "a holder that kept the turn still has it", func(t *testing.T, q *queue) {
		all := together(q, "k", 1)
		require.Equal(t, local.Kept, all[0].passes())
		all = append(all, arrive(q, "k", shared, exclusive)...)
		require.Equal(t, "in waiting waiting", states(all...))
		all[0].leaves()
		require.Equal(t, "out in waiting", states(all...))
	})
}

func TestSharers(t *testing.T) {
	bubble(t, "the first holds the turn alone until it shares", func(t *testing.T, q *queue) {
		all := arrive(q, "k", shared, shared, shared, exclusive, shared)
		require.Equal(t, "in waiting waiting waiting waiting", states(all...))
		all[0].shares()
		require.Equal(t, "in in in waiting waiting", states(all...))
		all[0].passes()
		all[2].leaves()
		require.Equal(t, "out in out waiting waiting", states(all...), "the last of them hands the turn over")
		all[1].passes()
		require.Equal(t, "out out out in waiting", states(all...))
		all[3].passes()
		require.Equal(t, "out out out out in", states(all...))
		all[4].leaves()
		requireUnused(t, q)
	})
	bubble(t, "later sharers enter as long as no caller waits", func(t *testing.T, q *queue) {
		together(q, "k", 1)
		assert.Equal(t, "in in", states(arrive(q, "k", shared, ask{Shared: true, NoWait: true})...))
	})
	bubble(t, "sharing ends with the last sharer", func(t *testing.T, q *queue) {
		a := together(q, "k", 1)[0]
		b := arrives(q, "k", exclusive)
		a.passes()
		require.Equal(t, "in waiting", states(b, arrives(q, "k", shared)))
	})
	bubble(t, "each of several passes, the last one keeps", func(t *testing.T, q *queue) {
		all := together(q, "k", 2)
		require.Equal(t, local.Passed, all[0].passes())
		require.Equal(t, local.Kept, all[1].passes())
		require.True(t, all[1].leaves())
		requireUnused(t, q)
	})
}

func TestWriterGivesUpBetweenSharers(t *testing.T) {
	bubble(t, "sharers behind it enter", func(t *testing.T, q *queue) {
		all := append(together(q, "k", 1), arrive(q, "k", exclusive, shared, shared, exclusive, shared)...)
		all[1].givesUp()
		require.Equal(t, "in canceled in in waiting waiting", states(all...))
	})
	bubble(t, "not past another writer", func(t *testing.T, q *queue) {
		together(q, "k", 1)
		all := arrive(q, "k", exclusive, exclusive, shared)
		all[1].givesUp()
		require.Equal(t, "waiting canceled waiting", states(all...))
		all[0].givesUp()
		require.Equal(t, "canceled canceled in", states(all...))
	})
	bubble(t, "not beside a holder that has not shared", func(t *testing.T, q *queue) {
		for _, holder := range []ask{shared, exclusive} {
			all := arrive(q, "k", holder, exclusive, shared)
			all[1].givesUp()
			require.Equal(t, "in canceled waiting", states(all...))
			all[0].passes()
			all[2].leaves()
		}
	})
}

// Neither kind can starve the other: with callers of the other kind arriving at every step, each waits only for those
// ahead of it.
func TestNobodyStarves(t *testing.T) {
	for name, c := range map[string]struct {
		ahead       func(q *queue) []*caller
		one, others ask
	}{
		"a writer among readers": {func(q *queue) []*caller { return together(q, "k", 3) }, exclusive, shared},
		"a reader among writers": {func(q *queue) []*caller { return arrive(q, "k", exclusive, exclusive, exclusive) }, shared, exclusive},
	} {
		bubble(t, name, func(t *testing.T, q *queue) {
			ahead := c.ahead(q)
			one := arrives(q, "k", c.one)
			for _, other := range ahead {
				require.Equal(t, "waiting waiting", states(one, arrives(q, "k", c.others)))
				other.passes()
			}
			require.Equal(t, "in", states(one))
		})
	}
}
