package local_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

// permits asks for one of n permits.
func permits(n int32) ask { return ask{Limit: local.Unlimited, Permits: n} }

func noWaitPermits(n int32) ask { return ask{Limit: local.Unlimited, Permits: n, NoWait: true} }

func TestPermits(t *testing.T) { // rule P1
	bubble(t, "as many as the limit are held, each with a baton", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(2), permits(2), permits(2), noWaitPermits(2))
		require.Equal(t, "in in waiting busy", states(all...))
		require.Equal(t, []int{1, 2}, []int{all[0].turn.Lane(), all[1].turn.Lane()})
		require.NotSame(t, all[0].turn.Baton(), all[1].turn.Baton())
		require.Equal(t, 2, all[0].turn.Beside())
		of := all[1].turn.Baton()
		require.Equal(t, local.Passed, all[1].passes())
		require.Equal(t, "in", all[2].state)
		require.Same(t, of, all[2].turn.Baton(), "the lane goes with it")
		require.Equal(t, local.Kept, all[0].passes())
		require.True(t, all[0].leaves())
		require.Equal(t, "in", arrives(q, "k", noWaitPermits(2)).state)
	})
	bubble(t, "first come, first served over all kinds", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(2), permits(2), exclusive, permits(2), shared, permits(3))
		require.Equal(t, "in in in waiting waiting waiting", states(all...))
		require.True(t, all[2].turn.Early())
		require.Equal(t, local.Barred, all[0].passes(), "the first in line cannot use a lane")
		all[0].leaves()
		require.Equal(t, "out in in waiting waiting waiting", states(all...))
		require.Equal(t, local.Barred, all[1].passes())
		all[1].leaves()
		require.Equal(t, "out out in waiting waiting waiting", states(all...))
		require.Equal(t, local.Barred, all[2].passes(), "nor this one the key's own turn")
		all[2].leaves()
		require.Equal(t, "out out out in in in", states(all...))
	})
	bubble(t, "the head holds up all behind it", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(3), permits(3), permits(1), permits(9), shared)
		require.Equal(t, "in in waiting waiting waiting", states(all...))
		all[2].givesUp()
		require.Equal(t, "in in canceled in in", states(all...), "until it gives up")
	})
	bubble(t, "a smaller limit waits until fewer are held", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(3), permits(3), permits(3), permits(1), permits(3))
		for _, c := range all[:2] {
			require.Equal(t, local.Barred, c.passes())
			c.leaves()
			require.Equal(t, "waiting waiting", states(all[3:]...))
		}
		require.Equal(t, local.Passed, all[2].passes())
		require.Equal(t, "in in", states(all[3:]...), "and lets those in that it held up")
	})
	bubble(t, "sharers count as one", func(t *testing.T, q *queue) {
		all := arrive(q, "k", shared, permits(2), permits(2))
		require.Equal(t, "in in waiting", states(all...))
		all[0].shares()
		second := arrives(q, "k", shared)
		require.Equal(t, "waiting", second.state, "behind the permit")
		require.Equal(t, local.Barred, all[0].passes())
		all[0].leaves()
		require.Equal(t, "out in in", states(all...))
		require.Equal(t, "in", second.state, "it has no limit")
	})
	bubble(t, "a closed queue", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(1), permits(1))
		q.Close()
		synctest.Wait()
		require.Equal(t, "in closed", states(all...))
		require.False(t, drained(q))
		all[0].turn.Pin()
		all[0].leaves()
		require.False(t, drained(q))
		q.Unpin("k", 1)
		require.True(t, drained(q))
	})
}

// alone waits with Alone, on a goroutine of its own.
func (c *caller) alone(deadline time.Time) {
	c.waits(func() error { return c.turn.Alone(c.ctx, deadline) })
}

func TestExclusiveTurnBesidePermits(t *testing.T) { // rule P6
	bubble(t, "it is alone when they have left, and keeps others out", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(3), permits(3), exclusive, exclusive, permits(3), shared, noWait)
		require.Equal(t, "in in in waiting waiting waiting busy", states(all...))
		require.Equal(t, "busy", arrives(q, "k", noWaitPermits(3)).state)
		all[2].alone(time.Time{})
		all[0].leaves()
		require.Equal(t, "in waiting waiting waiting", states(append(all[1:2], all[2:5]...)...))
		all[1].leaves()
		require.Equal(t, "in waiting waiting waiting", states(all[2:6]...))
		all[2].leaves()
		require.Equal(t, "in waiting waiting", states(all[3:6]...))
		require.False(t, all[3].turn.Early())
		all[3].alone(time.Time{})
		require.Equal(t, "in", all[3].state, "at once")
		all[3].leaves()
		require.Equal(t, "in in", states(all[4:6]...))
	})
	bubble(t, "without others in line, its permits still are not kept", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(1), exclusive)
		require.Equal(t, local.Barred, all[0].passes())
		all[0].leaves()
		require.Equal(t, local.Kept, all[1].passes())
	})
	bubble(t, "one that gives up has its turn, and passes it on", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(1), exclusive, exclusive, permits(2))
		all[1].alone(time.Now().Add(time.Second))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "timeout waiting waiting", states(all[1:]...))
		require.Equal(t, local.Passed, all[1].passes())
		require.Equal(t, "in waiting", states(all[2:]...))
		require.True(t, all[2].turn.Early())
		all[2].alone(time.Time{})
		all[2].givesUp()
		require.Equal(t, "canceled", all[2].state)
		require.Equal(t, local.Barred, all[2].passes())
		all[2].leaves()
		require.Equal(t, "in", all[3].state)
	})
	bubble(t, "when all that are left wait elsewhere, it is behind", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(3), permits(3), permits(3), exclusive)
		all[0].turn.Await()
		all[0].turn.Await()
		all[1].turn.Aside()
		all[3].alone(time.Time{})
		require.Equal(t, "waiting", all[3].state, "one is inside")
		all[2].leaves()
		require.ErrorContains(t, all[3].turn.Alone(t.Context(), time.Time{}), "wait elsewhere")
		require.Equal(t, local.ErrBehind.Error(), all[3].state)
		all[1].turn.Received()
		all[3].alone(time.Time{})
		require.Equal(t, "waiting", all[3].state, "one has come back")
		all[1].leaves()
		require.Equal(t, local.ErrBehind.Error(), all[3].state)
		all[0].leaves()
		all[3].alone(time.Time{})
		require.Equal(t, "in", all[3].state)
		again := arrive(q, "k", permits(2))
		all[3].leaves()
		late := arrives(q, "k", exclusive)
		require.Equal(t, "in in", states(again[0], late))
		late.alone(time.Time{})
		require.Equal(t, "waiting", late.state, "a lane that is used again is not aside")
		again[0].leaves()
		require.Equal(t, "in", late.state)
	})
	bubble(t, "it follows when those before it are at work, or wait elsewhere", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(4), permits(4), permits(4), permits(4), exclusive)
		all[4].waits(func() error { return all[4].turn.Follow(t.Context(), time.Time{}) })
		all[0].turn.Await()
		all[1].turn.Aside()
		all[2].turn.Arrived()
		synctest.Wait()
		require.Equal(t, "waiting", all[4].state)
		all[3].leaves()
		require.Equal(t, "in", all[4].state)
	})
	bubble(t, "a closed queue", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(1), exclusive)
		all[1].alone(time.Time{})
		q.Close()
		synctest.Wait()
		require.Equal(t, "closed", all[1].state)
		all[1].leaves()
		all[0].leaves()
		require.True(t, drained(q))
	})
}

func TestLanesGoWithTheirLastUser(t *testing.T) { // rule L4
	bubble(t, "a pinned lane is used before others", func(t *testing.T, q *queue) {
		all := arrive(q, "k", permits(5), permits(5), permits(5))
		of := all[1].turn.Baton()
		all[1].turn.Pin()
		all[1].leaves()
		all[0].leaves()
		again := arrives(q, "k", permits(5))
		require.Equal(t, 2, again.turn.Lane())
		require.Same(t, of, again.turn.Baton())
		low := arrives(q, "k", permits(5))
		require.Equal(t, 1, low.turn.Lane(), "else the lowest that is not in use")
		require.Equal(t, 4, arrives(q, "k", permits(5)).turn.Lane(), "after 3")
		q.Unpin("k", 2)
		again.leaves()
		var seen []int
		q.Each(func(_ string, lane int, _ *baton, _ int) { seen = append(seen, lane) })
		require.Equal(t, []int{0, 1, 3, 4}, seen)
		require.Len(t, q.Batons(nil, "k"), 4)
		require.Len(t, q.Others("k", 3), 2, "lane 0 has no user")
		require.Len(t, q.Others("k", 0), 3)
	})
	bubble(t, "and the key with its last lane", func(t *testing.T, q *queue) {
		for range 3 {
			all := arrive(q, "k", permits(2), permits(2))
			all[0].leaves()
			all[1].leaves()
			requireUnused(t, q)
		}
		require.Nil(t, q.Batons(nil, "k"))
		require.Nil(t, q.Others("k", 0))
	})
	bubble(t, "an idle lane can be taken", func(t *testing.T, q *queue) {
		c := arrives(q, "k", permits(1))
		c.turn.Pin()
		var idle local.Turn[*baton]
		require.False(t, q.Idle(&idle, "k", 1), "it has a holder")
		require.False(t, q.Idle(&idle, "k", 2), "not in use")
		of := c.turn.Baton()
		c.leaves()
		require.True(t, q.Idle(&idle, "k", 1))
		require.Same(t, of, idle.Baton())
		beside := arrives(q, "k", permits(1))
		require.Equal(t, "in", beside.state, "nobody has the permit")
		require.NotSame(t, of, beside.turn.Baton())
		idle.Leave()
		q.Unpin("k", 1)
		beside.leaves()
		requireUnused(t, q)
	})
	bubble(t, "an idle lane keeps nobody out", func(t *testing.T, q *queue) {
		for _, a := range []ask{{NoWait: true}, {NoWait: true, Shared: true}, {Limit: 0}} {
			c := arrives(q, "k", exclusive)
			c.turn.Pin()
			c.leaves()
			var idle local.Turn[*baton]
			require.True(t, q.Idle(&idle, "k", 0))
			permit := arrives(q, "k", ask{Permits: 1, NoWait: true})
			require.Equal(t, "in", permit.state, "it has another lane")
			if a.NoWait && !a.Shared {
				require.Equal(t, "busy", arrives(q, "k", a).state, "the permit keeps it out")
			}
			permit.leaves()
			waits := arrives(q, "k", a)
			require.Equal(t, "waiting", waits.state, "for a moment")
			require.Contains(t, "busy full", arrives(q, "k", a).state, "that one is before it")
			idle.Leave()
			synctest.Wait()
			require.Equal(t, "in", waits.state)
			q.Unpin("k", 0)
			waits.leaves()
			requireUnused(t, q)
		}
	})
}

func TestOffer(t *testing.T) { // rule P2
	// Three have lanes, of which two wait elsewhere; one waits in line.
	crowd := func(t *testing.T, q *queue, limits ...ask) []*caller {
		all := arrive(q, "k", limits...)
		require.Equal(t, "in in in waiting", states(all...))
		t.Cleanup(all[3].cancel)
		return all
	}
	bubble(t, "the one that came first is called, whoever awaited first", func(t *testing.T, q *queue) {
		all := crowd(t, q, permits(3), permits(3), permits(3), permits(3))
		late, early := all[2].turn.Await(), all[1].turn.Await()
		require.Equal(t, early, all[1].turn.Await(), "again")
		of := all[0].turn.Baton()
		require.True(t, all[0].turn.Offer())
		require.Equal(t, local.Taken, all[0].turn.Pass())
		<-early
		require.Empty(t, late)
		own := all[1].turn.Received()
		require.NotNil(t, own)
		all[1].turn.Swap(own)
		require.Same(t, of, all[1].turn.Baton())
		require.Equal(t, 2, own.Lane())
		require.Equal(t, local.Passed, own.Pass())
		synctest.Wait()
		require.Equal(t, "in", all[3].state)
		require.Equal(t, 2, all[3].turn.Lane(), "the first in line has the lane now that waits elsewhere")
		require.Equal(t, 3, all[1].turn.Beside())
	})
	bubble(t, "nobody awaits", func(t *testing.T, q *queue) {
		all := crowd(t, q, permits(3), permits(3), permits(3), permits(3))
		require.False(t, all[0].turn.Offer())
		all[1].turn.Await()
		require.Nil(t, all[1].turn.Received())
		require.Nil(t, all[1].turn.Received(), "again")
		require.False(t, all[0].turn.Offer())
		require.Equal(t, local.Passed, all[0].passes())
	})
	bubble(t, "nor is one called whose limit is smaller, or others before it", func(t *testing.T, q *queue) {
		all := crowd(t, q, permits(4), permits(3), permits(4), permits(3))
		all[1].turn.Await()
		all[2].turn.Await()
		require.False(t, all[0].turn.Offer())
	})
	bubble(t, "what was passed too late is passed on", func(t *testing.T, q *queue) {
		all := crowd(t, q, permits(3), permits(3), permits(3), permits(3))
		all[1].turn.Await()
		require.True(t, all[0].turn.Offer())
		own := all[1].turn.Received()
		require.NotNil(t, own, "it has something by now, and does not look at the channel")
		require.Equal(t, []int{2, 1}, []int{all[1].turn.Lane(), own.Lane()})
		all[2].turn.Await()
		require.True(t, own.Offer())
		require.NotNil(t, all[2].turn.Received())
		require.Empty(t, all[1].turn.Await(), "the lane is called anew only")
		require.Nil(t, all[1].turn.Received())
	})
	bubble(t, "only permits", func(t *testing.T, q *queue) {
		c := arrives(q, "k", exclusive)
		require.Nil(t, c.turn.Await())
		require.Nil(t, c.turn.Received())
		require.False(t, c.turn.Offer())
		require.Zero(t, c.turn.Permits())
		require.Nil(t, new(local.Turn[*baton]).Await())
	})
}
