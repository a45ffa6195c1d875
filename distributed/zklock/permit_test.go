package zklock

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

func permits(n int) func(*distributed.Request) {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

func TestLimitsAreInTheIds(t *testing.T) {
	for want, limit := range map[int]int{0: 0, 1: 1, 255: 255, mostLimit: mostLimit + 5} {
		id := idOf(rand.Text(), limit)
		require.Len(t, id, idLength)
		n, ok := parseNode(head(distributed.Shared, tagOf("i"), id) + "0000000007")
		require.True(t, ok)
		require.True(t, n.shared)
		require.Equal(t, want, n.limit)
	}
}

// lineOf is a queue of these: x writes, s reads, a digit is the limit of a permit.
func lineOf(text string) (q queue) {
	for i, c := range text {
		q = append(q, node{name: fmt.Sprint(i), shared: c != 'x', limit: max(strings.IndexRune("0123456789", c), 0)})
	}
	return q
}

func TestAdmitted(t *testing.T) {
	for line, want := range map[string]int{
		"": 0, "x": 1, "xs": 1, "sx": 1, "ssx2": 2, "s22": 2, "22222": 2, "3333": 3, "13": 2, "213s": 1, "2s2s": 2, "2x2": 1, "x22": 1, "1s": 2,
	} {
		require.Equal(t, want, lineOf(line).admitted(false), line)
	}
	for line, want := range map[string]int{"x": 1, "xs": 2, "x22": 2, "xsx": 2, "x1": 1} {
		require.Equal(t, want, lineOf(line).admitted(true), line)
	}
}

// A waiter that limits keep out is not admitted before one of those has gone that it watches, whoever else goes.
func TestWaitersWatchWhatCanAdmitThem(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 20_000 {
		var line strings.Builder
		for range 1 + rnd.IntN(9) {
			line.WriteByte("ss1223345"[rnd.IntN(9)])
		}
		q := lineOf(line.String())
		for i := q.admitted(false); i < len(q); i++ {
			watched := q.short(i)
			require.NotEmpty(t, watched, "%s at %d", line.String(), i)
			rest := slices.DeleteFunc(slices.Clone(q[:i+1]), func(n node) bool {
				return n.name != q[i].name && !slices.Contains(watched, n) && rnd.IntN(2) == 0
			})
			require.Less(t, rest.admitted(false), len(rest), "%s at %d, which watches %v, is admitted in %v", line.String(), i, watched, rest)
		}
	}
}

// A permit that is released wakes few of those that wait, however many there are.
func TestReleasedPermitWakesFew(t *testing.T) {
	t.Parallel()
	const limit, waiters = 4, 20
	root := newRoot()
	b, other := open(t, need(t).Addr, root), open(t, need(t).Addr, root)
	var held []distributed.Lease
	for i := range limit {
		held = append(held, asker{t, other, "k"}.lease(fmt.Sprint("h", i), permits(limit), lasting(long)))
	}
	var places []distributed.Place
	for i := range waiters {
		places = append(places, asker{t, b, "k"}.place(fmt.Sprint("w", i), permits(limit), lasting(long)))
	}
	woken := func(l distributed.Lease) int64 {
		before := b.counts.events.Load()
		release(t, l)
		held, places = append(held, granted(t, places[0])), places[1:]
		time.Sleep(20 * time.Millisecond) // for events that must not come
		return b.counts.events.Load() - before
	}
	require.Equal(t, "h0 and 3 more", places[0].(distributed.HolderTeller).Holder())
	youngest := held[3]
	require.LessOrEqual(t, woken(held[0]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(held[1]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(youngest), int64(limit))
	for _, p := range places {
		require.NoError(t, p.Leave(t.Context()))
	}
	for _, l := range append(held[2:3], held[4:]...) {
		release(t, l)
	}
}

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	t.Parallel()
	const limit = mostFollowed + 8
	b := open(t, need(t).Addr, newRoot())
	ask := asker{t, b, "k"}
	var held []distributed.Lease
	for i := range limit {
		held = append(held, ask.lease(fmt.Sprint("h", i), permits(limit), lasting(long)))
	}
	p, next := ask.place("p", permits(limit), lasting(long)), ask.place("next", permits(limit), lasting(long))
	for _, one := range []distributed.Place{p, next} {
		i := mathrand.IntN(len(held))
		release(t, held[i])
		held[i] = granted(t, one)
	}
	for _, l := range held {
		release(t, l)
	}
}

// A permit whose process was killed is free again when its session has ended, and no other one before.
func TestKilledPermit(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	t.Parallel()
	const limit = ttl + 500*time.Millisecond // as for TestKilledHolder
	killed := func() time.Duration {
		root := newRoot()
		cmd := startHolder(t, root, childLimitEnv+"=2")
		ask := asker{t, open(t, server.Addr, root), "k"}
		other := ask.lease("other", permits(2), lasting(long))
		p, next := ask.place("next", permits(2), lasting(long)), ask.place("after", permits(2), lasting(long))
		require.NoError(t, cmd.Process.Kill())
		start := time.Now()
		_ = cmd.Wait()
		l := granted(t, p)
		took := time.Since(start)
		require.Empty(t, next.Granted())
		release(t, other)
		release(t, granted(t, next))
		release(t, l)
		return took
	}
	took := killed()
	for range 2 {
		if took > limit {
			took = killed()
		}
	}
	t.Logf("let in %v after the kill, with a time-out of %v", took.Round(time.Millisecond), ttl)
	require.Less(t, took, limit)
}
