package local_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/local"
)

// member is a caller that may lead a batch, or ride in one.
type member struct {
	*caller
	local.Member
	ready  chan struct{}
	served bool // it was there at the end of its batch
	done   bool // it is back from there
}

// joins lets a member of g enter.
func joins(q *queue, g *local.Group, a ask) *member {
	m := &member{Member: local.Member{Group: g}, ready: make(chan struct{}, 1)}
	m.Owner = m
	m.caller = &caller{state: "waiting"}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.turn.Join(&m.Member)
	go func() {
		err := q.Enter(m.ctx, &m.turn, "k", a)
		m.state = outcome(err)
		if err == local.ErrRides {
			m.rides()
		}
	}()
	synctest.Wait()
	return m
}

func (m *member) rides() {
	m.state = "riding"
	m.served = m.Wait(m.ctx)
	m.done = true
}

// leads takes the others along and waits, like them, for the end.
func (m *member) leads(max int) (size int) {
	size = m.turn.Take(max, m.ready, time.Now())
	go m.rides()
	synctest.Wait()
	return size
}

// ends ends the batch that m leads, and returns how many were there.
func (m *member) ends() (told int) {
	for other := range m.Batch() {
		if other.End() {
			told++
		}
	}
	synctest.Wait()
	return told
}

func (m *member) order() (all []*member) {
	for other := range m.Batch() {
		all = append(all, other.Owner.(*member))
	}
	return all
}

func TestBatchIsTheUnbrokenRunAtTheHead(t *testing.T) {
	var g, other local.Group
	bubble(t, "up to another group", func(t *testing.T, q *queue) {
		a, b, c := joins(q, &g, exclusive), joins(q, &g, exclusive), joins(q, &g, exclusive)
		x, d := joins(q, &other, exclusive), joins(q, &g, exclusive)
		require.Equal(t, 3, a.leads(local.Unlimited))
		require.Equal(t, []*member{a, b, c}, a.order())
		require.Equal(t, "waiting waiting", states(x.caller, d.caller))
		require.Equal(t, local.Passed, a.passes())
		require.Equal(t, 3, a.ends())
		require.Equal(t, 1, x.leads(local.Unlimited), "d does not overtake, nor is it of this group")
		x.leaves()
		x.ends()
		end(q, d.caller)
		requireUnused(t, q)
	})
	bubble(t, "up to a caller of no group", func(t *testing.T, q *queue) {
		a := joins(q, &g, exclusive)
		plain, b := arrives(q, "k", exclusive), joins(q, &g, exclusive)
		require.Equal(t, 1, a.leads(local.Unlimited))
		a.leaves()
		a.ends()
		require.Equal(t, "in waiting", states(plain, b.caller))
	})
	bubble(t, "up to max", func(t *testing.T, q *queue) {
		a, b, c := joins(q, &g, exclusive), joins(q, &g, exclusive), joins(q, &g, exclusive)
		require.Equal(t, 2, a.leads(2))
		require.Equal(t, []*member{a, b}, a.order())
		a.leaves()
		a.ends()
		require.Equal(t, "in", c.state)
		require.Equal(t, 1, c.leads(1))
		c.leaves()
		c.ends()
	})
}

func TestRiderThatGivesUpBeforeIsLeftOut(t *testing.T) {
	var g local.Group
	bubble(t, "", func(t *testing.T, q *queue) {
		a, b := joins(q, &g, exclusive), joins(q, &g, exclusive)
		c := joins(q, &g, within(time.Second, exclusive))
		d := joins(q, &g, exclusive)
		b.givesUp()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "canceled timeout", states(b.caller, c.caller))
		require.Equal(t, 2, a.leads(local.Unlimited))
		require.Equal(t, []*member{a, d}, a.order())
		a.leaves()
		require.Equal(t, 2, a.ends())
	})
}

func TestRidersDoNotWait(t *testing.T) {
	var g local.Group
	var waiting atomic.Int64
	bubble(t, "", func(t *testing.T, q *queue) {
		counted := exclusive
		counted.Waiting = &waiting
		a := joins(q, &g, counted)
		b, c := joins(q, &g, within(time.Second, counted)), joins(q, &g, counted)
		require.EqualValues(t, 2, waiting.Load())
		a.leads(local.Unlimited)
		require.Zero(t, waiting.Load())
		_, queued := inUse(q)
		require.Zero(t, queued)
		time.Sleep(2 * time.Second)
		q.Close()
		synctest.Wait()
		require.Equal(t, "riding waiting", states(b.caller, c.caller), "neither the end of its wait nor Close ends a ride; c sleeps on")
		a.leaves()
		require.True(t, drained(q))
		require.False(t, a.done || b.done || c.done)
		require.Equal(t, 3, a.ends())
		require.True(t, a.served && b.served && c.served)
		require.Zero(t, waiting.Load())
	})
}

func TestEachMemberMayLeaveABatch(t *testing.T) {
	var g local.Group
	for leaver, what := range []string{"leader", "first rider", "last rider"} {
		bubble(t, what, func(t *testing.T, q *queue) {
			a := joins(q, &g, exclusive)
			all := []*member{a, joins(q, &g, exclusive), joins(q, &g, exclusive)}
			a.leads(local.Unlimited)
			all[leaver].givesUp()
			for i, m := range all {
				require.Equal(t, i == leaver, m.done, "it leaves at once and wakes nobody")
			}
			require.False(t, all[leaver].served)
			a.leaves()
			require.Equal(t, 2, a.ends())
			for i, m := range all {
				require.Equal(t, i != leaver, m.served)
			}
		})
	}
	bubble(t, "all", func(t *testing.T, q *queue) {
		a, b := joins(q, &g, exclusive), joins(q, &g, exclusive)
		a.leads(local.Unlimited)
		a.givesUp()
		b.givesUp()
		a.leaves()
		require.Zero(t, a.ends())
	})
	bubble(t, "at the moment of the end", func(t *testing.T, q *queue) {
		a, b := joins(q, &g, exclusive), joins(q, &g, exclusive)
		a.leads(local.Unlimited)
		b.cancel()
		require.True(t, b.End() != b.left(), "one of the two wins")
		a.leaves()
		a.End()
	})
}

// left waits for the caller to come back, and reports whether it has left.
func (m *member) left() bool {
	synctest.Wait()
	return m.done && !m.served
}

func TestLeaderWithoutItsTurnTakesNobody(t *testing.T) {
	var g local.Group
	bubble(t, "", func(t *testing.T, q *queue) {
		a, b := joins(q, &g, exclusive), joins(q, &g, exclusive)
		a.leaves() // as a lost lease does
		require.Equal(t, 1, a.leads(local.Unlimited))
		require.Equal(t, "in", b.state)
		a.ends()
	})
}

// TestRacesOfABatch has leaders, riders that leave, and callers of no group meet in real time.
func TestRacesOfABatch(t *testing.T) {
	var g local.Group
	var waiting, inside atomic.Int64
	q := newQueue()
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			for i := range testscope.Scale(20_000/10, 20_000) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+(i*worker)%50)*10*time.Microsecond)
				raceOnce(t, ctx, q, &g, i%5 > 0, &waiting, &inside)
				cancel()
			}
		})
	}
	all.Wait()
	require.Zero(t, waiting.Load())
	requireUnused(t, q)
}

func raceOnce(t *testing.T, ctx context.Context, q *queue, g *local.Group, grouped bool, waiting, inside *atomic.Int64) {
	m := &member{Member: local.Member{Group: g}, ready: make(chan struct{}, 1), caller: &caller{}}
	if grouped {
		m.turn.Join(&m.Member)
	}
	err := q.Enter(ctx, &m.turn, "k", ask{Limit: local.Unlimited, Waiting: waiting})
	if err == local.ErrRides {
		m.Wait(ctx)
	}
	if err != nil {
		return
	}
	if inside.Add(1) != 1 {
		t.Error("two turns at the same time")
	}
	size, found := 1, 0
	if grouped {
		size = m.turn.Take(8, m.ready, time.Now())
	}
	for range m.Batch() {
		found++
	}
	if found != size {
		t.Errorf("a batch of %d with %d members", size, found)
	}
	inside.Add(-1)
	if m.turn.Pass() == local.Kept {
		m.turn.Leave()
	}
	for other := range m.Batch() {
		other.End() // a caller of no group is not aboard
	}
}
