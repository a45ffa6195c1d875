package redislock

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

// spent returns how often each command has run, inside scripts or not, while f did. The subscription's, and this test's own, do not count.
func spent(s *redistest.Server, f func()) map[string]int {
	before := commandStats(s)
	f()
	after := commandStats(s)
	after["publish"] -= after["eval"] - before["eval"] // of proofs
	for _, other := range []string{"info", "hello", "client|setinfo", "ping", "eval"} {
		delete(after, other)
	}
	for name := range after {
		if after[name] -= before[name]; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

// TestCosts: the commands of the usual ways, as docs/redis.md says, and no other ones.
func TestCosts(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u, other := newUser(t, b).lasting(time.Minute), newUser(t, open(t, s.Addr)).lasting(time.Minute) // no renewal comes between
	release(t, u.lease(key(t)))
	release(t, other.lease(key(t))) // scripts are loaded
	const n = 100
	require.Equal(t, map[string]int{"evalsha": 2 * n, "mget": 2 * n, "time": n, "set": 2 * n, "del": n}, spent(s, func() {
		for range n {
			release(t, u.lease(key(t)))
		}
	}), "a free lock")

	l := u.lease(key(t))
	require.Equal(t, map[string]int{"evalsha": n, "mget": n, "time": n, "set": 2 * n}, spent(s, func() {
		for range n {
			l = u.lease(key(t), func(r *distributed.Request) { r.Prev = l })
		}
	}), "prev")

	for range 3 {
		refused := spent(s, func() {
			for range n {
				require.ErrorIs(t, other.fails(t.Context(), key(t), noWait), distributed.ErrHeld)
			}
		})
		require.Equal(t, []int{n, 1}, []int{refused["evalsha"], refused["publish"]}, "refusals: one message for each lease")
		require.Equal(t, map[string]int{"evalsha": 1, "mget": 1, "del": 1}, spent(s, func() { release(t, l) }), "of which a release knows nothing")
		l = u.lease(key(t))
	}
	release(t, l)

	permits := func() user { return newUser(t, b).lasting(time.Minute) }
	inside := func(most int, what string, f func()) {
		t.Helper()
		all, sum := spent(s, f), 0
		for name, times := range all {
			if name != "evalsha" {
				sum += times
			}
		}
		require.Equal(t, 1, all["evalsha"], what)
		require.LessOrEqual(t, sum, most, "%s: %v", what, all)
	}
	beside := permits().lease(key(t), permit(2))
	release(t, permits().lease(key(t), permit(2)))
	inside(10, "acquire a permit", func() { l = permits().lease(key(t), permit(2)) })
	inside(8, "release it", func() { release(t, l) })
	l = permits().lease(key(t), permit(2))
	p := permits().place(key(t), permit(2))
	inside(28, "hand it over", func() { release(t, l) })
	release(t, granted(t, p))
	release(t, beside)
}

func BenchmarkFreeKey(b *testing.B) {
	s := redistest.Start(b)
	u := newUser(b, open(b, s.Addr)).lasting(5e9)
	release(b, u.lease("bench:free:1"))
	b.ReportAllocs()
	for b.Loop() {
		release(b, u.get("bench:free:1"))
	}
}

func BenchmarkHandOver(b *testing.B) {
	s := redistest.Start(b)
	x, y := newUser(b, open(b, s.Addr)).lasting(5e9), newUser(b, open(b, s.Addr)).lasting(5e9)
	var l distributed.Lease = x.lease("bench:hand:1")
	for i := 0; b.Loop(); i++ {
		p := []user{y, x}[i%2].place("bench:hand:1")
		release(b, l)
		l = granted(b, p)
	}
}

// BenchmarkOwnKeys is 64 goroutines with a key each, which release in the background.
func BenchmarkOwnKeys(b *testing.B) {
	s := redistest.Start(b)
	backend := open(b, s.Addr)
	const callers = 64
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		u := newUser(b, backend).lasting(5 * time.Second)
		name := "bench:own:" + string(rune('0'+i))
		wg.Go(func() {
			l := u.get(name)
			for n.Add(1) <= int64(b.N) {
				l.StartRelease()
				l = u.get(name, func(r *distributed.Request) { r.Prev = l }) // as a tenure does, which cannot know if it is out yet
			}
		})
	}
	wg.Wait()
}
