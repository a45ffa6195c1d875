package etcdlock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

func permits(n int) func(*distributed.Request) {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

// lineOf is a queue of these: x writes, s reads, a digit is the limit of a permit.
func lineOf(text string) (q []request) {
	for i, c := range text {
		q = append(q, request{fmt.Sprint(i), int64(i + 1), c != 'x', max(strings.IndexRune("0123456789", c), 0)})
	}
	return q
}

func TestAdmitted(t *testing.T) {
	for line, want := range map[string]int{
		"": 0, "x": 1, "xs": 1, "sx": 1, "ssx2": 2, "s22": 2, "22222": 2, "3333": 3, "13": 2, "213s": 1, "2s2s": 2, "2x2": 1, "x22": 1, "1s": 2,
	} {
		require.Equal(t, want, admitted(lineOf(line)), line)
	}
}

// A waiter is not admitted before one of those has gone that it watches, whoever else goes.
func TestWaitersWatchWhatCanAdmitThem(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 20_000 {
		var line strings.Builder
		for range 1 + rnd.IntN(9) {
			line.WriteByte("xss1223345"[rnd.IntN(10)])
		}
		q := lineOf(line.String())
		for i := admitted(q); i < len(q); i++ {
			if !q[i].shared {
				continue // it watches the one before it
			}
			watched := waitsFor(q, i)
			require.NotEmpty(t, watched, "%s at %d", line.String(), i)
			rest := slices.DeleteFunc(slices.Clone(q[:i+1]), func(r request) bool {
				return r.name != q[i].name && !slices.Contains(watched, r) && rnd.IntN(2) == 0
			})
			require.Less(t, admitted(rest), len(rest), "%s at %d, which watches %v, is admitted in %v", line.String(), i, watched, rest)
		}
	}
}

// A permit that is released wakes few of those that wait, however many there are.
func TestReleasedPermitWakesFew(t *testing.T) {
	t.Parallel()
	const limit, waiters = 4, 20
	server, prefix := etcdtest.Shared(t), newPrefix()
	b, other := open(t, server.Addr, prefix), open(t, server.Addr, prefix)
	var held []distributed.Lease
	for i := range limit {
		held = append(held, asker{t, other, "k"}.lease(fmt.Sprint("h", i), permits(limit), lasting(long)))
	}
	var places []distributed.Place
	for i := range waiters {
		places = append(places, asker{t, b, "k"}.place(fmt.Sprint("w", i), permits(limit), lasting(long)))
	}
	require.LessOrEqual(t, len(b.watches.ids()), limit*waiters)
	woken := func(l distributed.Lease) int64 {
		time.Sleep(watchPause * 20) // what the watches have missed at their beginning is looked at
		before := b.watches.events.Load()
		release(t, l)
		next := granted(t, places[0])
		held, places = append(held, next), places[1:]
		time.Sleep(watchPause * 20)
		return b.watches.events.Load() - before
	}
	require.LessOrEqual(t, woken(held[0]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(held[1]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(held[len(held)-1]), int64(limit), "the youngest")
	for _, p := range places {
		require.NoError(t, p.Leave(t.Context()))
	}
	for _, l := range append(held[2:len(held)-2], held[len(held)-1]) {
		release(t, l)
	}
}

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	t.Parallel()
	const limit = mostFollowed + 8
	b := onShared(t)
	ask := asker{t, b, "k"}
	held := make([]distributed.Lease, limit)
	each(limit, 8, func(i int) { held[i] = ask.lease(fmt.Sprint("h", i), permits(limit), lasting(long)) })
	p, next := ask.place("p", permits(limit), lasting(long)), ask.place("next", permits(limit), lasting(long))
	for _, one := range []distributed.Place{p, next} {
		i := rand.IntN(len(held))
		release(t, held[i])
		held[i] = granted(t, one)
	}
	each(limit, 8, func(i int) { release(t, held[i]) })
}

// A permit whose process was killed is free again when its session has expired, and no other one before.
func TestKilledPermit(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	t.Parallel()
	const limit = ttl + ttl/6 + 500*time.Millisecond // as for TestKilledHolder
	killed := func() time.Duration {
		server, prefix := etcdtest.Shared(t), newPrefix()
		h := startHolder(t, server.Addr, prefix, childLimitEnv+"=2")
		ask := asker{t, open(t, server.Addr, prefix), "k"}
		other := ask.lease("other", permits(2), lasting(long))
		p, next := ask.place("next", permits(2), lasting(long)), ask.place("after", permits(2), lasting(long))
		require.NoError(t, h.cmd.Process.Kill())
		start := time.Now()
		l := granted(t, p)
		took := time.Since(start)
		require.Greater(t, fence(t, l), h.fence)
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
	t.Logf("let in %v after the kill, with a TTL of %v", took.Round(time.Millisecond), ttl)
	require.Less(t, took, limit)
}
