package behavior

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// A lease that is lost in the moment in which a caller gets in takes its lane along, and that does not wait for a fellow's any more.
func TestPermitThatIsLostAsItIsGrantedWaitsForNoFellow(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		b, three := memlock.New(), wllock.Permits(3)
		var lose atomic.Int32
		l, other := lockerOn(t, frail(b, &lose)), lockerOn(t, b)
		away, first := several(t, 3, other, three), comes(t, l, three)
		line := several(t, 5, l, three)
		lose.Store(1)
		leaves(away[0])
		require.Equal(t, "lost", first.state())
		require.Equal(t, []string{"in", "waiting", "waiting", "waiting", "waiting"}, are(line...))
		leaves(away[1:]...)
		require.Equal(t, []string{"in", "in", "in", "waiting", "waiting"}, are(line...))
		leaves(line[0])
		require.Equal(t, []string{"out", "in", "in", "in", "waiting"}, are(line...))
		leaves(line[1:]...)
		time.Sleep(3 * ttl)
		nothingLeft(t, b, l, other)
	})
}

// A caller that needs a lease of its own is not offered one that serves others, which then would go to the line, past those that have
// waited at the backend for longer.
func TestPermitPassesAFellowThatNeedsALeaseOfItsOwn(t *testing.T) { // rules P2 and N1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other, three := lockerOn(t, b), wllock.Permits(3)
		away := comes(t, other, three, wllock.WithLockTimeMax(0))
		away2 := comes(t, other, three, wllock.WithLockTimeMax(0))
		first := comes(t, l, three)
		own, plain, line := comes(t, l, three, wllock.WithHoldAtLeast(1)), comes(t, l, three), comes(t, l, three)
		leaves(first)
		require.Equal(t, []string{"waiting", "in", "waiting"}, are(own, plain, line))
		leaves(away, away2)
		require.Equal(t, []string{"in", "in", "in"}, are(own, plain, line))
		leaves(own, plain, line)
		time.Sleep(ttl) // own stays for a moment
		nothingLeft(t, b, l, other)
	})
}

// scene is a process with a permit, another process with the other one, a caller that waits for one at the backend, and one
// behind it in line.
func scene(t *testing.T) (m *miser, b *memlock.Backend, l *wllock.Locker, holder, elsewhere, waits, behind *guest) {
	b, two := memlock.New(), wllock.Permits(2)
	m = &miser{Backend: b}
	l = lockerOn(t, m)
	holder, elsewhere = comes(t, l, two), comes(t, lockerOn(t, b), two)
	waits, behind = comes(t, l, two), comes(t, l, two)
	require.Equal(t, []string{"in", "in", "waiting", "waiting"}, are(holder, elsewhere, waits, behind))
	return
}

// The lease that a fellow passes may turn out not to serve: the caller waits on in its place, and the lane goes to the next, who
// does what it takes.
func TestPermitThatIsPassedAndDoesNotServe(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		m, b, l, holder, elsewhere, waits, behind := scene(t)
		m.runsOut(nil)
		leaves(holder)
		require.Equal(t, []string{"waiting", "in"}, are(waits, behind))
		require.True(t, behind.held.Handoff())
		leaves(elsewhere)
		require.Equal(t, "in", waits.state(), "it has kept its place")
		leaves(waits, behind)
		nothingLeft(t, b, l)
	})
}

// A permit that is passed to a caller that has just got one of its own goes on to the next in line.
func TestPermitThatIsPassedTooLate(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		m, b, l, holder, elsewhere, waits, behind := scene(t)
		gate := make(chan struct{})
		m.runsOut(gate)
		leaves(elsewhere) // its permit goes to the one that waits, which has to fetch a fence
		require.Equal(t, "waiting", waits.state())
		close(holder.leave)
		require.Equal(t, []string{"out", "waiting", "waiting"}, are(holder, waits, behind))
		close(gate)
		require.Equal(t, []string{"in", "in"}, are(waits, behind))
		require.False(t, waits.held.Handoff())
		require.True(t, behind.held.Handoff())
		leaves(waits, behind)
		nothingLeft(t, b, l)
	})
}

// So it does if both come in the same moment, whichever the caller takes.
func TestPermitThatIsPassedAsOneIsGranted(t *testing.T) { // rule P2
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			_, b, l, holder, elsewhere, waits, behind := scene(t)
			close(holder.leave)
			close(elsewhere.leave)
			require.Equal(t, []string{"in", "in"}, are(waits, behind))
			leaves(waits, behind)
			nothingLeft(t, b, l)
		})
	}
}

// A lease that has served its budget is not passed to a caller that waits at the backend: it would lose its place with it.
func TestPermitThatMayNotBeHandedOnIsNotPassed(t *testing.T) { // rule P2
	synctest.Test(t, func(t *testing.T) {
		b, two := memlock.New(), wllock.Permits(2)
		l := lockerOn(t, b, wllock.WithMaxHandoffs(0))
		holder, elsewhere := comes(t, l, two), comes(t, lockerOn(t, b), two)
		waits, behind, later := comes(t, l, two), comes(t, l, two), comes(t, lockerOn(t, b), two)
		leaves(holder)
		require.Equal(t, []string{"in", "waiting", "waiting"}, are(waits, behind, later), "by its place")
		require.False(t, waits.held.Handoff())
		leaves(elsewhere)
		require.Equal(t, []string{"waiting", "in"}, are(behind, later), "who asked before it had a lane")
		leaves(waits)
		require.Equal(t, "in", behind.state())
		leaves(behind, later)
		nothingLeft(t, b, l)
	})
}

// What this process is giving up does not keep it out itself.
func TestNoWaitIsExactAfterOnesOwnPermits(t *testing.T) { // rule P3
	kinds := map[string][]wllock.CallOption{
		"permits": {wllock.Permits(2)}, "fewer": {wllock.Permits(1)}, "exclusive": nil, "shared": {wllock.Shared()},
	}
	for first, before := range kinds {
		for second, after := range kinds {
			for how, opts := range map[string][]wllock.Option{"released": nil, "lingering": {wllock.WithLinger(time.Minute)}} {
				bubble(t, first+", then "+second+", "+how, func(t *testing.T) {
					l := lockerOn(t, tardy(memlock.New(), tardyBy), opts...)
					for _, g := range several(t, 2, l, append(before, wllock.NoWait())...) {
						if g.state() == "in" {
							close(g.leave)
						}
					}
					time.Sleep(time.Microsecond) // they have left, and their releases are under way
					begin := time.Now()
					require.NoError(t, l.Do(t.Context(), "n", "k", nothing, append(after, wllock.NoWait())...))
					require.LessOrEqual(t, time.Since(begin), 2*tardyBy)
				})
			}
		}
	}
}

const tardyBy = 20 * time.Millisecond

func TestLingeringPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithLinger(time.Hour))
		other := lockerOn(t, b)
		leaves(several(t, 2, l, wllock.Permits(2))...)
		time.Sleep(10 * ttl)
		info := l.Locks(9)
		require.Len(t, info, 1)
		require.True(t, info[0].Lingering)
		again := comes(t, l, wllock.Permits(2))
		require.True(t, again.held.Handoff())
		begin := time.Now()
		from := comes(t, other, wllock.Permits(2))
		require.Equal(t, "in", from.state(), "the idle one went back")
		require.Zero(t, time.Since(begin))
		leaves(again, from)
		leaves(comes(t, l)) // own idle permits keep nobody out either
	})
}

func TestPermitStaysTakenForAtLeastThatLong(t *testing.T) { // rule N2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		stays := wllock.WithHoldAtLeast(least)
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.Permits(2), stays))
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.Permits(2), stays))
		require.Zero(t, time.Since(begin))
		require.Equal(t, "held", comes(t, l, wllock.Permits(2), wllock.NoWait()).state())
		waits := comes(t, other, wllock.Permits(2), stays)
		time.Sleep(least - 1)
		require.Equal(t, "waiting", waits.state())
		require.EqualValues(t, 1, l.Stats().Total.Held)
		require.True(t, l.Locks(1)[0].Staying)
		time.Sleep(time.Nanosecond)
		require.Equal(t, "in", waits.state())
		leaves(waits)
		require.NoError(t, other.Close(t.Context()))
		nothingLeft(t, memlock.New(), l)
	})
}

func TestPermitsOfALocalOnlyLocker(t *testing.T) { // rule P1
	synctest.Test(t, func(t *testing.T) {
		b, two, forever := memlock.New(), wllock.Permits(2), wllock.WithLockTimeMax(0)
		l, other := lockerOn(t, b, wllock.WithOutage(wllock.LocalOnly)), lockerOn(t, b, wllock.WithOutage(wllock.LocalOnly))
		b.Partition(true)
		all := append(several(t, 3, l, two, forever), several(t, 3, other, two, forever)...)
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"in", "in", "waiting", "in", "in", "waiting"}, are(all...), "n in each process")
		require.True(t, all[0].held.Degraded())
		require.Zero(t, all[0].fence)
		drain := comes(t, l)
		leaves(all[0], all[1])
		require.Equal(t, []string{"in", "waiting"}, are(all[2], drain))
		leaves(all[2])
		require.Equal(t, "in", drain.state())
		b.Partition(false)
		time.Sleep(2 * ttl)
		leaves(drain, all[3], all[4], all[5])
		time.Sleep(2 * ttl)
		g := comes(t, l, wllock.Permits(1))
		require.Equal(t, "in", g.state())
		require.False(t, g.held.Degraded())
		leaves(g)
	})
}

func TestCloseWithPermits(t *testing.T) { // rule T8
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithLinger(time.Hour))
		other, three := lockerOn(t, b), wllock.Permits(3)
		held, elsewhere, waits := several(t, 2, l, three), comes(t, other, three), several(t, 2, l, three)
		closed := make(chan error)
		go func() { closed <- l.Close(context.Background()) }()
		require.Equal(t, []string{"in", "in", "closed", "closed"}, are(append(held, waits...)...))
		leaves(held[0])
		require.Empty(t, closed)
		leaves(held[1])
		require.NoError(t, <-closed)
		leaves(elsewhere)
		nothingLeft(t, b, other)
	})
}

func TestCloseAbandonsPermits(t *testing.T) { // rule T8
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		all := several(t, 2, l, wllock.Permits(2))
		ctx := ended(t)
		require.ErrorContains(t, l.Close(ctx), "2 locks were still held")
		require.Equal(t, []string{"closed", "closed"}, are(all...))
	})
}

func TestPermitsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithInstance("host"))
		other, three := lockerOn(t, b), wllock.Permits(3)
		all := append(several(t, 2, l, three), comes(t, other, three))
		line := append(several(t, 2, l, three), comes(t, other))
		time.Sleep(time.Millisecond)
		require.Len(t, l.Locks(9), 1)
		info := l.Locks(9)[0]
		require.Equal(t, "permits", info.Mode)
		require.Equal(t, []int{3, 2, 1}, []int{info.Permits, info.Holders, info.Waiting})
		require.True(t, info.AtBackend)
		require.Equal(t, l.Instance(), info.Holder)
		require.Equal(t, max(all[0].fence, all[1].fence), info.Fence)
		require.EqualValues(t, 2, l.Stats().Names["n"].Held)
		require.EqualValues(t, 1, l.Stats().Names["n"].Waiting)
		found, err := l.Inspect(t.Context(), "n", "k")
		require.NoError(t, err)
		require.Len(t, found.Holders, 3)
		require.Equal(t, l.Instance()+"#2", found.Holders[1].Instance)
		err = other.Do(t.Context(), "n", "k", nothing, wllock.WithWait(time.Second))
		require.Equal(t, l.Instance()+" and 2 more", asError(t, err).Holder)
		for _, g := range line {
			g.end()
		}
		leaves(all...)
		nothingLeft(t, b, l, other)
	})
}

// Threshold: exact in line; those at the backend are not counted, as with locks.
func TestThresholdOfPermits(t *testing.T) { // rule L2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithThreshold(2))
		all := append(several(t, 1, lockerOn(t, b), wllock.Permits(2)), several(t, 5, l, wllock.Permits(2))...)
		require.Equal(t, []string{"in", "in", "waiting", "waiting", "waiting", "full"}, are(all...))
		require.Positive(t, asError(t, all[5].err).RetryAfter)
		leaves(all[:5]...)
	})
}

func TestSyncReleaseOfPermits(t *testing.T) { // rule T5
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l := lockerOn(t, tardy(b, tardyBy))
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.Permits(2), wllock.SyncRelease()))
		require.Equal(t, tardyBy, time.Since(begin))
		k, err := l.Acquire(t.Context(), "n", "k", wllock.Permits(2))
		require.NoError(t, err)
		drain := comes(t, l)
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, 2*tardyBy, time.Since(begin), "also if others wait that cannot use its lane")
		leaves(drain)
	})
}

// Idle leases of this process are taken back by the first that asks. Those that ask at the same moment are not refused for it.
func TestNoWaitOfSeveralAfterALingeringLease(t *testing.T) { // rule P3
	const n, rounds = 4, 300
	l := lockerOn(t, memlock.New(), wllock.WithLinger(time.Hour))
	for round := range rounds {
		before := [][]wllock.CallOption{nil, {wllock.Shared()}, {wllock.Permits(n + 1)}}[round%3]
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, before...))
		var start, all sync.WaitGroup
		start.Add(1)
		for range n {
			all.Go(func() {
				start.Wait()
				if err := l.Do(t.Context(), "n", "k", nothing, wllock.Permits(n), wllock.NoWait()); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		start.Done()
		all.Wait()
		if t.Failed() {
			return
		}
	}
}
