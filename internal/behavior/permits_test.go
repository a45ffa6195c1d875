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

func TestPermitsAreExactOverAllInstances(t *testing.T) { // rule P1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		all := []*guest{comes(t, l, wllock.Permits(3)), comes(t, other, wllock.Permits(3)), comes(t, l, wllock.Permits(3))}
		require.Equal(t, []string{"in", "in", "in"}, are(all...))
		for _, of := range []*wllock.Locker{l, other} {
			g := comes(t, of, wllock.Permits(3), wllock.NoWait())
			require.Equal(t, "held", g.state())
			e := g.err.(*wllock.Error)
			require.NotEmpty(t, e.Holder)
			require.NotContains(t, e.Holder, "#", "of the Locker, not of its lane")
		}
		waits := comes(t, l, wllock.Permits(3))
		require.Equal(t, "waiting", waits.state())
		leaves(all[1])
		require.Equal(t, "in", waits.state())
		require.Equal(t, "held", comes(t, other, wllock.Permits(3), wllock.NoWait()).state())
		leaves(all[0])
		again := comes(t, other, wllock.Permits(3), wllock.NoWait())
		require.Equal(t, "in", again.state())
		leaves(all[2], waits, again)
		nothingLeft(t, b, l, other)
	})
}

func TestPermitsAreFirstComeFirstServed(t *testing.T) { // rules L1 and P2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		first, taken := comes(t, l, wllock.Permits(2)), comes(t, other, wllock.Permits(2))
		var line []*guest
		for range 5 { // the first of them waits at the backend, the others behind it
			line = append(line, comes(t, l, wllock.Permits(2)))
		}
		leaves(first)
		require.Equal(t, []string{"in", "waiting", "waiting", "waiting", "waiting"}, are(line...), "the lease went to the first")
		require.True(t, line[0].held.Handoff())
		leaves(line[0])
		require.Equal(t, []string{"out", "in", "waiting", "waiting", "waiting"}, are(line...))
		leaves(taken)
		require.Equal(t, []string{"out", "in", "in", "waiting", "waiting"}, are(line...), "from the other instance, to the place at the backend")
		line[3].end()
		require.Equal(t, []string{"out", "in", "in", "canceled", "waiting"}, are(line...))
		leaves(line[1])
		require.Equal(t, "in", line[4].state())
		leaves(line[2], line[4])
		nothingLeft(t, b, l, other)
	})
}

// A lease that has served its budget goes to the one who came first of all, wherever that is.
func TestPermitsChangeInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, other := lockerOn(t, b, wllock.WithMaxHandoffs(1)), lockerOn(t, b)
		held := []*guest{comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))}
		elsewhere := comes(t, other, wllock.Permits(2))
		line := []*guest{comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))}
		leaves(held[0])
		require.Equal(t, []string{"waiting", "in", "waiting"}, are(elsewhere, line[0], line[1]), "a hand-off")
		leaves(line[0])
		require.Equal(t, []string{"in", "waiting"}, are(elsewhere, line[1]), "one was all")
		leaves(held[1])
		require.Equal(t, "in", line[1].state())
		leaves(elsewhere, line[1])
		nothingLeft(t, b, l, other)
	})
}

func TestPermitsDrain(t *testing.T) { // rule P1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b, wllock.WithMaxHandoffs(0))
		held := []*guest{comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3)), comes(t, other, wllock.Permits(3))}
		drain := comes(t, l)
		behind := []*guest{comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3))}
		require.Equal(t, "held", comes(t, l, wllock.Permits(9), wllock.NoWait()).state())
		leaves(held[:2]...)
		require.Equal(t, []string{"waiting", "waiting", "waiting"}, are(drain, behind[0], behind[1]))
		behind = append(behind, comes(t, other, wllock.Permits(3)))
		leaves(held[2])
		require.Equal(t, []string{"in", "waiting", "waiting", "waiting"}, are(drain, behind[0], behind[1], behind[2]))
		require.Greater(t, drain.fence, max(held[0].fence, held[1].fence, held[2].fence))
		leaves(drain)
		require.Equal(t, []string{"in", "in", "in"}, are(behind...))
		leaves(behind...)
		nothingLeft(t, b, l, other)
	})
}

func TestFewerPermitsAdmitNobodyUntilBelow(t *testing.T) { // rules P1 and P2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		held := []*guest{comes(t, l, wllock.Permits(4)), comes(t, l, wllock.Permits(4)), comes(t, lockerOn(t, b), wllock.Permits(4)), comes(t, l, wllock.Permits(4))}
		own := comes(t, l, wllock.Permits(2)) // in the line of the process that holds three
		line := []*guest{comes(t, lockerOn(t, b), wllock.Permits(2)), comes(t, lockerOn(t, b), wllock.Permits(2)), comes(t, lockerOn(t, b), wllock.Permits(4))}
		leaves(held[0], held[1])
		require.Equal(t, []string{"waiting", "waiting", "waiting", "waiting"}, are(own, line[0], line[1], line[2]),
			"nobody was admitted by an old lease, nor the one with the old limit, behind them")
		leaves(held[2])
		require.Equal(t, []string{"waiting", "in", "waiting", "waiting"}, are(own, line[0], line[1], line[2]))
		leaves(held[3])
		require.Equal(t, []string{"waiting", "in", "in", "in"}, are(own, line[0], line[1], line[2]), "four by the last one's limit")
		leaves(line[0], line[1])
		require.Equal(t, "in", own.state())
		leaves(line[2], own)
		nothingLeft(t, b, l)
	})
}

// A place that a caller has left to the next in line was asked for with its own n, not with that of the next.
func TestPlaceOfAnotherLimitIsNotInherited(t *testing.T) { // rules T3 and P1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		held := []*guest{comes(t, other, wllock.Permits(2)), comes(t, other, wllock.Permits(2))}
		waits, one := comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(1))
		waits.end()
		leaves(held[0])
		require.Equal(t, []string{"canceled", "waiting"}, are(waits, one))
		leaves(held[1], one)
		nothingLeft(t, b, l, other)
	})
}

func TestReadersAndPermits(t *testing.T) { // rule P1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		readers := []*guest{comes(t, l, wllock.Shared()), comes(t, l, wllock.Shared())}
		permit := comes(t, l, wllock.Permits(2))
		require.Equal(t, []string{"in", "in", "in"}, are(readers[0], readers[1], permit), "readers of an instance count as one")
		late := comes(t, l, wllock.Permits(2))
		leaves(readers[0])
		require.Equal(t, "waiting", late.state())
		leaves(readers[1])
		require.Equal(t, "in", late.state())
		reader := comes(t, l, wllock.Shared())
		require.Equal(t, "in", reader.state(), "it has no limit")
		require.Equal(t, "held", comes(t, l, wllock.Permits(3), wllock.NoWait()).state())
		leaves(reader, late, permit)
		nothingLeft(t, b, l)
	})
}

func TestEachPermitHasAFence(t *testing.T) { // rule P4
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other, seen, last := lockerOn(t, b), map[uint64]bool{}, uint64(0)
		for range 4 {
			all := []*guest{comes(t, l, wllock.Permits(3)), comes(t, other, wllock.Permits(3)), comes(t, l, wllock.Permits(3))}
			highest := last
			for _, g := range all {
				require.Greater(t, g.fence, last)
				require.False(t, seen[g.fence])
				seen[g.fence] = true
				highest = max(highest, g.fence)
			}
			leaves(all...)
			writer := comes(t, other)
			require.Greater(t, writer.fence, highest)
			last = writer.fence
			leaves(writer)
		}
	})
}

func TestPermitThatOverstaysIsLostAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		fellow := comes(t, l, wllock.Permits(2), wllock.WithLockTimeMax(0))
		stays := make(chan error)
		go func() {
			stays <- l.Do(t.Context(), "n", "k", func(context.Context) error { time.Sleep(5 * ttl); return nil },
				wllock.Permits(2), wllock.WithLockTimeMax(ttl))
		}()
		synctest.Wait()
		begin, other := time.Now(), lockerOn(t, b)
		next := comes(t, other, wllock.Permits(2))
		require.Equal(t, "waiting", next.state())
		time.Sleep(2*ttl + ttl/2)
		require.Equal(t, []string{"in", "in"}, are(fellow, next), "within T of the maximum")
		lostAfter(t, <-stays)
		require.NoError(t, fellow.held.Err())
		require.Less(t, time.Since(begin), 6*ttl)
		leaves(fellow, next)
		nothingLeft(t, b, l, other)
	})
}

func TestPermitsThatAreTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		lost := []*guest{comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))}
		line := []*guest{comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))}
		b.Expire("test:n:k")
		time.Sleep(ttl)
		require.Equal(t, []string{"lost", "lost", "in", "in"}, are(append(lost, line...)...))
		leaves(line...)
		nothingLeft(t, b, l)
	})
}

func TestPermitInsideItsOwnLock(t *testing.T) { // rules L6 and P5
	l, _ := newLocker(t)
	for outer, opts := range map[string][]wllock.CallOption{
		"permit": {wllock.Permits(1)}, "exclusive": nil, "shared": {wllock.Shared()},
	} {
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			for inner, opts := range map[string][]wllock.CallOption{
				"permit": {wllock.Permits(1)}, "more": {wllock.Permits(7)}, "exclusive": nil, "shared": {wllock.Shared()},
			} {
				err := l.Do(ctx, "n", "k", nothing, opts...)
				isPermit := inner == "permit" || inner == "more"
				if outer != "exclusive" && inner == "exclusive" || outer == "shared" && isPermit {
					require.ErrorIs(t, err, wllock.ErrUpgrade, "%s inside %s", inner, outer)
				} else {
					require.NoError(t, err, "%s inside %s", inner, outer)
				}
			}
			return nil
		}, opts...))
	}
}

// With what Permits recommends, a limit by WithName, a drain is possible as well.
func TestExclusiveDrainsANameWithPermits(t *testing.T) { // rule P1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithName("n", wllock.Permits(2)))
		all := []*guest{comes(t, l), comes(t, l)}
		drain, behind := comes(t, l, wllock.Exclusive()), comes(t, l)
		require.Equal(t, []string{"in", "in", "waiting", "waiting"}, are(all[0], all[1], drain, behind))
		leaves(all...)
		require.Equal(t, []string{"in", "waiting"}, are(drain, behind))
		leaves(drain, behind)
		leaves(comes(t, l, wllock.Shared(), wllock.Exclusive()), comes(t, l, wllock.Exclusive(), wllock.Permits(2)))
		nothingLeft(t, b, l)
	})
}

func TestWhatPermitsCannotBeCombinedWith(t *testing.T) { // rule P5
	l, _ := newLocker(t, wllock.WithName("p", wllock.Permits(2)))
	batch := func(name string, opts ...wllock.CallOption) error {
		_, err := wllock.WrapBatch(l, name, func(int) string { return "k" }, doubling, opts...)(t.Context(), 1)
		return err
	}
	for what, err := range map[string]error{
		"none":              l.Do(t.Context(), "n", "k", never(t), wllock.Permits(0)),
		"fewer":             l.Do(t.Context(), "n", "k", never(t), wllock.Permits(-1)),
		"Shared":            l.Do(t.Context(), "n", "k", never(t), wllock.Permits(2), wllock.Shared()),
		"Shared before":     l.Do(t.Context(), "n", "k", never(t), wllock.Shared(), wllock.Permits(2)),
		"Shared, by name":   l.Do(t.Context(), "p", "k", never(t), wllock.Shared()),
		"Lead":              l.Lead(t.Context(), "n", "k", never(t), wllock.Permits(2)),
		"a batch":           batch("n", wllock.Permits(2)),
		"a batch, by name":  batch("p"),
		"DoAll":             l.DoAll(t.Context(), []wllock.Resource{{Name: "n", Key: "k"}}, never(t), wllock.Permits(2)),
		"a DoAll's name":    l.DoAll(t.Context(), []wllock.Resource{{Name: "n", Key: "k"}, {Name: "p", Key: "k", Shared: true}}, never(t)),
		"and the key is ok": l.Do(t.Context(), "p", "", never(t)),
	} {
		require.Error(t, err, what)
	}
	_, err := wllock.New("test", memlock.New(), wllock.WithDefaults(wllock.Permits(0)))
	require.ErrorContains(t, err, "Permits(0): want 1 or more")
	require.Zero(t, l.Stats().Total.Acquired)
}

func TestBackendWithoutPermitsSaysSo(t *testing.T) {
	b := &impermissive{memlock.New()}
	l := lockerOn(t, b)
	err := l.Do(t.Context(), "n", "k", never(t), wllock.Permits(2))
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorContains(t, err, "permits (a limit of 2 leases)")
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

// The tests of this file are named after what other semaphores over a service are known for.

// Redisson's RSemaphore counts what is free, so a process that dies keeps its permits for ever (redisson #2045).
func TestPermitsAreFreeAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		dead, other := lockerOn(t, m), lockerOn(t, b)
		victims := []*guest{comes(t, dead, wllock.Permits(3), wllock.WithLockTimeMax(0)), comes(t, dead, wllock.Permits(3), wllock.WithLockTimeMax(0))}
		fellow := comes(t, other, wllock.Permits(3), wllock.WithLockTimeMax(0))
		line := []*guest{comes(t, other, wllock.Permits(3)), comes(t, other, wllock.Permits(3))}
		time.Sleep(3 * ttl)
		require.Equal(t, []string{"waiting", "waiting"}, are(line...))
		m.die()
		time.Sleep(ttl + ttl/10)
		require.Equal(t, []string{"in", "in", "in"}, are(fellow, line[0], line[1]))
		require.Equal(t, []string{"lost", "lost"}, are(victims...))
		leaves(fellow, line[0], line[1])
		nothingLeft(t, b, other)
	})
}

// A process that dies in line holds nobody up for longer than its place lasts.
func TestPermitsPassAWaiterThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		dead, other := lockerOn(t, m), lockerOn(t, b)
		holder := comes(t, other, wllock.Permits(1))
		victim, next := comes(t, dead, wllock.Permits(1)), comes(t, lockerOn(t, b), wllock.Permits(1))
		m.die()
		leaves(holder) // the grant goes to the dead one, and is not claimed
		time.Sleep(ttl)
		require.Equal(t, "in", next.state())
		leaves(next)
		victim.end()
		synctest.Wait()
	})
}

// RPermitExpirableSemaphore missed releases, and its waiters hung (redisson #5762). Here each release wakes the next, also if it
// meets a cancellation at the same moment.
func TestNoReleaseOfAPermitIsMissed(t *testing.T) {
	const n, callers, rounds = 2, 12, 60
	b := memlock.New()
	lockers := []*wllock.Locker{lockerOn(t, b), lockerOn(t, b, wllock.WithMaxHandoffs(0)), lockerOn(t, b, wllock.WithMaxHandoffs(2))}
	var inside, done atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for round := range rounds {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if round%3 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(round)*20*time.Microsecond)
				}
				err := lockers[i%3].Do(ctx, "n", "k", func(context.Context) error {
					if now := inside.Add(1); now > n {
						t.Errorf("%d of %d are inside", now, n)
					}
					time.Sleep(50 * time.Microsecond)
					inside.Add(-1)
					done.Add(1)
					return nil
				}, wllock.Permits(n))
				cancel()
				if round%3 != 0 && err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, done.Load(), int32(callers*rounds*2/3))
}

// Asking for more than one permit at once hung (redisson #6664). Here a program asks for several one inside the other, of several
// keys; of one key they are one.
func TestMoreThanOnePermitDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
			return l.Do(ctx, "n", "b", func(ctx context.Context) error {
				return l.Do(ctx, "n", "a", nothing, wllock.Permits(1), wllock.NoWait())
			}, wllock.Permits(1))
		}, wllock.Permits(1)))
		all := []*guest{comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3)), comes(t, l, wllock.Permits(3))}
		require.Equal(t, []string{"in", "in", "in"}, are(all...))
		leaves(all...)
		require.Zero(t, time.Since(begin))
		nothingLeft(t, b, l)
	})
}

// Semaphores left keys without a TTL (redisson #4100, #6302), here after callers that were served, gave up, and died.
func TestPermitsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		l, dead := lockerOn(t, b), lockerOn(t, m)
		all := []*guest{comes(t, l, wllock.Permits(2)), comes(t, dead, wllock.Permits(2)), comes(t, l, wllock.Permits(2)), comes(t, dead, wllock.Permits(2))}
		all[2].end()
		m.die()
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"in", "lost", "canceled", "lost"}, are(all...), "the last one got its permit when it was dead")
		leaves(all[0])
		time.Sleep(2 * ttl)
		page, _, err := b.List(t.Context(), "test:", "", 9)
		require.NoError(t, err)
		require.Empty(t, page)
	})
}

// Curator does not check that processes agree on n, and a wrong one lets in as it likes. Here each goes by its own, and the largest
// bounds them all.
func TestPermitsOfProcessesThatDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		few := []*guest{comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2)), comes(t, l, wllock.Permits(2))}
		require.Equal(t, []string{"in", "in", "waiting"}, are(few...))
		many := []*guest{comes(t, other, wllock.Permits(4)), comes(t, other, wllock.Permits(4)), comes(t, other, wllock.Permits(4))}
		require.Equal(t, []string{"in", "in", "waiting"}, are(many...))
		leaves(many[:2]...)
		require.Equal(t, []string{"waiting", "in"}, are(few[2], many[2]))
		leaves(few[0], many[2])
		require.Equal(t, []string{"in", "in"}, are(few[1], few[2]))
		leaves(few[1:]...)
		nothingLeft(t, b, l, other)
	})
}

// redis-semaphore has no fences (#127): a store cannot tell a holder that was paused for too long from the one that has its permit
// now.
func TestPausedPermitHasASmallerFenceThanLaterOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		paused := comes(t, l, wllock.Permits(1), wllock.WithLockTimeMax(0))
		b.Expire("test:n:k")
		next := comes(t, lockerOn(t, b), wllock.Permits(1))
		require.Greater(t, next.fence, paused.fence)
		leaves(next)
		time.Sleep(ttl)
		require.Equal(t, "lost", paused.state())
	})
}
