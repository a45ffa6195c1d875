package behavior

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestPermits(t *testing.T) {
	pair(t, "they are exact over all instances", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) { // rule P1
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
	})

	pair(t, "first come, first served", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) { // rules L1 and P2
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
	})

	scene(t, "fewer admit nobody until below", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rules P1 and P2
		few, many := two, wllock.Permits(4)
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

	// A place that a caller has left to the next in line was asked for with its own n, not with that of the next.
	pair(t, "a place of another limit is not inherited", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) { // rules T3 and P1
		held := []*guest{comes(t, other, two), comes(t, other, two)}
		waits, one := comes(t, l, two), comes(t, l, wllock.Permits(1))
		waits.end()
		leaves(held[0])
		require.Equal(t, []string{"canceled", "waiting"}, are(waits, one))
		leaves(held[1], one)
	})

	// Threshold: exact in line; those at the backend are not counted, as with locks.
	scene(t, "the threshold", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule L2
		all := append(several(t, 1, lockerOn(t, b), two), several(t, 5, l, two)...)
		require.Equal(t, []string{"in", "in", "waiting", "waiting", "waiting", "full"}, are(all...))
		require.Positive(t, asError(t, all[5].err).RetryAfter)
		require.Equal(t, l.Instance(), asError(t, all[5].err).Holder)
		leaves(all[:5]...)
	}, wllock.WithThreshold(2))

	bubble(t, "a backend without permits says so", func(t *testing.T) {
		l := lockerOn(t, asking(memlock.New(), func(_ context.Context, r *distributed.Request) error { return r.Unlimited() }))
		err := l.Do(t.Context(), "n", "k", never(t), two)
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorContains(t, err, "permits (a limit of 2 leases)")
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

func TestPermitInsideItsOwnLock(t *testing.T) { // rules L6 and P5
	l, _ := newLocker(t)
	for outer, opts := range map[string][]wllock.CallOption{
		"permit": {wllock.Permits(1)}, "exclusive": nil, "shared": {wllock.Shared()},
	} {
		inside(t, l, keys("k"), func(ctx context.Context) {
			for inner, opts := range map[string][]wllock.CallOption{
				"permit": {wllock.Permits(1)}, "more": {wllock.Permits(7)}, "exclusive": nil, "shared": {wllock.Shared()},
			} {
				further := nothing
				if outer == "exclusive" {
					further = l.Guard("n", "k", nothing) // of the same exclusive hold
				}
				err := l.Do(ctx, "n", "k", further, opts...)
				isPermit := inner == "permit" || inner == "more"
				if outer != "exclusive" && inner == "exclusive" || outer == "shared" && isPermit {
					require.ErrorIs(t, err, wllock.ErrUpgrade, "%s inside %s", inner, outer)
					refusal(t, err, wllock.ErrUpgrade, wllock.TierLocal)
				} else {
					require.NoError(t, err, "%s inside %s", inner, outer)
				}
			}
		}, opts...)
	}
}

func TestWhatPermitsCannotBeCombinedWith(t *testing.T) { // rule P5
	l, _ := newLocker(t, wllock.WithName("p", two))
	batch := func(name string, opts ...wllock.CallOption) error {
		_, err := wllock.WrapBatch(l, name, func(int) string { return "k" }, doubling, opts...)(t.Context(), 1)
		return err
	}
	for what, err := range map[string]error{
		"none":              l.Do(t.Context(), "n", "k", never(t), wllock.Permits(0)),
		"fewer":             l.Do(t.Context(), "n", "k", never(t), wllock.Permits(-1)),
		"Shared":            l.Do(t.Context(), "n", "k", never(t), two, wllock.Shared()),
		"Shared before":     l.Do(t.Context(), "n", "k", never(t), wllock.Shared(), two),
		"Shared, by name":   l.Do(t.Context(), "p", "k", never(t), wllock.Shared()),
		"Lead":              l.Lead(t.Context(), "n", "k", never(t), two),
		"a batch":           batch("n", two),
		"a batch, by name":  batch("p"),
		"DoAll":             l.DoAll(t.Context(), []wllock.Resource{{Name: "n", Key: "k"}}, never(t), two),
		"a DoAll's name":    l.DoAll(t.Context(), []wllock.Resource{{Name: "n", Key: "k"}, {Name: "p", Key: "k", Shared: true}}, never(t)),
		"and the key is ok": l.Do(t.Context(), "p", "", never(t)),
	} {
		require.Error(t, err, what)
	}
	_, err := wllock.New("test", memlock.New(), wllock.WithDefaults(wllock.Permits(0)))
	require.ErrorContains(t, err, "Permits(0): want 1 or more")
	require.Zero(t, l.Stats().Total.Acquired)
}

// Instances share permits, and their callers come again and again. In time that passes only where callers wait, what is lost is what
// the rules cost: a permit that is free while somebody waits.
func TestPermitsAreInUse(t *testing.T) {
	const permits, instances, calls, work = 8, 4, 4000, 5 * time.Millisecond // plus or minus a half
	for callers, want := range map[int]float64{64: .97, 3: .97, 2: .90} {
		bubble(t, fmt.Sprintf("%d x %d", instances, callers), func(t *testing.T) {
			b := memlock.New()
			var all sync.WaitGroup
			var begun atomic.Int32
			var mu sync.Mutex // guards all below
			var inside, most int
			var busy, last time.Duration // the sum of all stays, when the last call began its work
			start := time.Now()
			works := func(context.Context) error {
				stay := work/2 + rand.N(work)
				mu.Lock()
				inside++
				most, last, busy = max(most, inside), time.Since(start), busy+stay
				mu.Unlock()
				time.Sleep(stay)
				mu.Lock()
				defer mu.Unlock()
				inside--
				return nil
			}
			for range instances {
				l := lockerOn(t, b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
				for range callers {
					all.Go(func() {
						for begun.Add(1) <= calls {
							assert.NoError(t, l.Do(context.Background(), "n", "k", works, wllock.Permits(permits)))
						}
					})
				}
			}
			all.Wait()
			busy -= permits / 2 * work // about what is left of the others when the last begins
			share := float64(busy) / float64(permits*last)
			t.Logf("%.1f%% in use", 100*share)
			require.Equal(t, permits, most)
			require.GreaterOrEqual(t, share, want)
		})
	}
}

func TestPermitIsPassed(t *testing.T) { // rule P2
	// A lease that is lost in the moment in which a caller gets in takes its lane along, and that does not wait for a fellow's any more.
	bubble(t, "one that is lost as it is granted waits for no fellow", func(t *testing.T) {
		var lose atomic.Int32
		b := memlock.New()
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

	// A caller that needs a lease of its own is not offered one that serves others, which then would go to the line, past those that have
	// waited at the backend for longer.
	pair(t, "it passes a fellow that needs a lease of its own", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) { // rules P2 and N1
		away, first := several(t, 2, other, three, forever), comes(t, l, three)
		own, plain, line := comes(t, l, three, wllock.WithHoldAtLeast(1)), comes(t, l, three), comes(t, l, three)
		leaves(first)
		require.Equal(t, []string{"waiting", "in", "waiting"}, are(own, plain, line))
		leaves(away...)
		require.Equal(t, []string{"in", "in", "in"}, are(own, plain, line))
		leaves(own, plain, line)
		time.Sleep(ttl) // own stays for a moment
	})

	// The lease that a fellow passes may turn out not to serve: the caller waits on in its place, and the lane goes to the next, who
	// does what it takes.
	bubble(t, "and does not serve", func(t *testing.T) {
		m, b, l, holder, elsewhere, waits, behind := passing(t)
		m.runsOut(nil)
		leaves(holder)
		require.Equal(t, []string{"waiting", "in"}, are(waits, behind))
		require.True(t, behind.held.Handoff())
		leaves(elsewhere)
		require.Equal(t, "in", waits.state(), "it has kept its place")
		leaves(waits, behind)
		nothingLeft(t, b, l)
	})

	// A permit that is passed to a caller that has just got one of its own goes on to the next in line.
	bubble(t, "too late", func(t *testing.T) {
		m, b, l, holder, elsewhere, waits, behind := passing(t)
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

	// A lease that has served its budget is not passed to a caller that waits at the backend: it would lose its place with it.
	bubble(t, "unless it may not be handed on", func(t *testing.T) {
		b := memlock.New()
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

// passing is a process with a permit, another process with the other one, a caller that waits for one at the backend, and one
// behind it in line.
func passing(t *testing.T) (m *miser, b *memlock.Backend, l *wllock.Locker, holder, elsewhere, waits, behind *guest) {
	b = memlock.New()
	m = &miser{Backend: b}
	l = lockerOn(t, m)
	holder, elsewhere = comes(t, l, two), comes(t, lockerOn(t, b), two)
	waits, behind = comes(t, l, two), comes(t, l, two)
	require.Equal(t, []string{"in", "in", "waiting", "waiting"}, are(holder, elsewhere, waits, behind))
	return
}

// So it does if both come in the same moment, whichever the caller takes.
func TestPermitThatIsPassedAsOneIsGranted(t *testing.T) { // rule P2
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			_, b, l, holder, elsewhere, waits, behind := passing(t)
			close(holder.leave)
			close(elsewhere.leave)
			require.Equal(t, []string{"in", "in"}, are(waits, behind))
			leaves(waits, behind)
			nothingLeft(t, b, l)
		})
	}
}

// What this process is giving up does not keep it out itself.
func TestNoWaitIsExactAfterOnesOwnPermits(t *testing.T) { // rule P3
	kinds := map[string][]wllock.CallOption{
		"permits": {two}, "fewer": {wllock.Permits(1)}, "exclusive": nil, "shared": {wllock.Shared()},
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
					gets := func() { require.NoError(t, l.Do(t.Context(), "n", "k", nothing, append(after, wllock.NoWait())...)) }
					require.LessOrEqual(t, elapsed(gets), 2*tardyBy)
				})
			}
		}
	}
}

const tardyBy = 20 * time.Millisecond

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
