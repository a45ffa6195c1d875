package behavior

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestPermitsAreExactOverAllInstances(t *testing.T) { // rule P1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other, three := lockerOn(t, b), wllock.Permits(3)
		all := append(several(t, 2, l, three), comes(t, other, three))
		require.Equal(t, []string{"in", "in", "in"}, are(all...))
		for _, of := range []*wllock.Locker{l, other} {
			g := comes(t, of, three, wllock.NoWait())
			require.Equal(t, "held", g.state())
			e := asError(t, g.err)
			require.NotEmpty(t, e.Holder)
			require.NotContains(t, e.Holder, "#", "of the Locker, not of its lane")
		}
		waits := comes(t, l, three)
		require.Equal(t, "waiting", waits.state())
		leaves(all[2])
		require.Equal(t, "in", waits.state())
		require.Equal(t, "held", comes(t, other, three, wllock.NoWait()).state())
		leaves(all[0])
		again := comes(t, other, three, wllock.NoWait())
		require.Equal(t, "in", again.state())
		leaves(all[1], waits, again)
		nothingLeft(t, b, l, other)
	})
}

func TestPermitsAreFirstComeFirstServed(t *testing.T) { // rules L1 and P2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other, two := lockerOn(t, b), wllock.Permits(2)
		first, taken := comes(t, l, two), comes(t, other, two)
		line := several(t, 5, l, two) // the first of them waits at the backend, the others behind it
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

func TestFewerPermitsAdmitNobodyUntilBelow(t *testing.T) { // rules P1 and P2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		few, many := wllock.Permits(2), wllock.Permits(4)
		held := append(several(t, 3, l, many), comes(t, lockerOn(t, b), many))
		own := comes(t, l, few) // in the line of the process that holds three
		line := []*guest{own, comes(t, lockerOn(t, b), few), comes(t, lockerOn(t, b), few), comes(t, lockerOn(t, b), many)}
		leaves(held[0], held[1])
		require.Equal(t, []string{"waiting", "waiting", "waiting", "waiting"}, are(line...),
			"nobody was admitted by an old lease, nor the one with the old limit, behind them")
		leaves(held[3])
		require.Equal(t, []string{"waiting", "in", "waiting", "waiting"}, are(line...))
		leaves(held[2])
		require.Equal(t, []string{"waiting", "in", "in", "in"}, are(line...), "four by the last one's limit")
		leaves(line[1], line[2])
		require.Equal(t, "in", own.state())
		leaves(line[3], own)
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

func TestPermitThatOverstaysIsLostAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		fellow := comes(t, l, wllock.Permits(2), wllock.WithLockTimeMax(0))
		stays := started(l, keys("k"), func(context.Context) error { time.Sleep(5 * ttl); return nil },
			wllock.Permits(2), wllock.WithLockTimeMax(ttl))
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
	b := memlock.New()
	l := lockerOn(t, entering{b, func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
		if err := r.Unlimited(); err != nil {
			return nil, nil, fmt.Errorf("test: %w", err)
		}
		return b.Enter(ctx, r)
	}})
	err := l.Do(t.Context(), "n", "k", never(t), wllock.Permits(2))
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorContains(t, err, "permits (a limit of 2 leases)")
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

// Other semaphores over a service count what is free, so a process that dies keeps its permits, or its keys, for ever.
func TestPermitsAreFreeAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		dead, other := lockerOn(t, m), lockerOn(t, b)
		three, forever := wllock.Permits(3), wllock.WithLockTimeMax(0)
		victims, fellow := several(t, 2, dead, three, forever), comes(t, other, three, forever)
		line := several(t, 2, other, three)
		victims = append(victims, comes(t, dead, three)) // the last in line
		time.Sleep(3 * ttl)
		require.Equal(t, []string{"waiting", "waiting"}, are(line...))
		m.die()
		time.Sleep(ttl + ttl/10)
		require.Equal(t, []string{"in", "in", "in"}, are(fellow, line[0], line[1]))
		require.Equal(t, []string{"lost", "lost", "waiting"}, are(victims...))
		leaves(fellow, line[0], line[1])
		time.Sleep(2 * ttl)
		victims[2].end()
		nothingLeft(t, b, dead, other)
	})
}
