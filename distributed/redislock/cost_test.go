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

func TestUncontendedCostsTwoCommandsOfFewCalls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr)).lasting(60e9) // no renewal comes between
	release(t, u.lease(key(t)))                    // scripts are loaded
	const n = 100
	before := commandStats(s)
	for range n {
		release(t, u.lease(key(t)))
	}
	after := commandStats(s)
	calls := func(name string) int { return after[name] - before[name] }
	require.Equal(t, 2*n, calls("evalsha"))
	inside := map[string]int{"mget": 2 * n, "time": n, "set": 3 * n, "del": n}
	for name, want := range inside {
		require.Equal(t, want, calls(name), name)
	}
	inside["evalsha"] = 2 * n
	for _, ours := range []string{"info", "hello", "client|setinfo", "ping"} { // this test's, and the watchdog's
		inside[ours] = 0
	}
	for name := range after {
		if _, ok := inside[name]; !ok {
			require.Zero(t, calls(name), "%s: a command of which the hot path knows nothing", name)
		}
	}
}

// Whoever is refused sends one command. The holder gets one message for its lease, and its release takes the usual way.
func TestRefusalsCostOneMessagePerLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u, other := newUser(t, open(t, s.Addr)).lasting(60e9), newUser(t, open(t, s.Addr))
	release(t, u.lease(key(t)))     // scripts are loaded
	release(t, other.lease(key(t))) // and the server is known
	const n = 50
	for range 3 {
		l := u.lease(key(t))
		before := commandStats(s)
		for range n {
			_, _, err := other.enter(t.Context(), key(t), noWait)
			require.ErrorIs(t, err, distributed.ErrHeld)
		}
		refused := commandStats(s)
		require.Equal(t, n, refused["evalsha"]-before["evalsha"])
		require.Equal(t, 1, refused["publish"]-before["publish"])
		release(t, l)
		after := commandStats(s)
		for name, want := range map[string]int{"evalsha": 1, "mget": 1, "del": 1, "set": 1} {
			require.Equal(t, want, after[name]-refused[name], name)
		}
	}
}

func TestPrevCostsOneCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr)).lasting(60e9)
	l := u.lease(key(t))
	const n = 100
	before := commandStats(s)
	for range n {
		l = u.lease(key(t), func(r *distributed.Request) { r.Prev = l })
	}
	after := commandStats(s)
	for name, want := range map[string]int{"evalsha": n, "mget": n, "time": n, "set": 2 * n} {
		require.Equal(t, want, after[name]-before[name], name)
	}
	release(t, l)
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
				l.(distributed.AsyncLease).StartRelease()
				l = u.get(name, func(r *distributed.Request) { r.Prev = l }) // as a tenure does, which cannot know if it is out yet
			}
		})
	}
	wg.Wait()
}
