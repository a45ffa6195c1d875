package migrating

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/internal/redistest"
)

// key is what the services lock.
const key = "orders:42"

// service is a process that locks the key. turn runs work under the lock; after an error work has not run.
type service struct {
	name string
	turn func(ctx context.Context, work func()) error
}

// crowd is services that change a counter under the lock, by reading it first and writing it afterwards.
type crowd struct {
	callers int           // of each service
	work    time.Duration // under the lock
	pause   time.Duration // about the time between two turns of a caller

	inside, overlaps atomic.Int64
	counter          atomic.Int64

	mu    sync.Mutex // guards what follows
	turns map[string]int
	waits map[string]time.Duration // the longest
}

// share has all services work until each has had that many turns, which fails after half a minute: one of them starves.
func (c *crowd) share(t *testing.T, turns int, services ...service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	c.start(ctx, services, func() {
		if len(c.turns) == len(services) && slices.Min(slices.Collect(maps.Values(c.turns))) >= turns {
			cancel()
		}
	})
	c.check(t)
	t.Logf("%v: %v, longest waits %v", time.Since(begun).Round(time.Millisecond), c.turns, c.waits)
	require.Len(t, c.turns, len(services), "some have had no turn: %v", c.turns)
	require.GreaterOrEqual(t, slices.Min(slices.Collect(maps.Values(c.turns))), turns, "%v", c.turns)
}

// start runs the services until ctx ends. after is called after each turn, under mu.
func (c *crowd) start(ctx context.Context, services []service, after func()) {
	c.turns, c.waits = map[string]int{}, map[string]time.Duration{}
	var callers sync.WaitGroup
	for _, s := range services {
		for range c.callers {
			callers.Go(func() {
				for ctx.Err() == nil {
					c.once(ctx, s, after)
					sleep(ctx, c.pause/2+rand.N(c.pause+1))
				}
			})
		}
	}
	callers.Wait()
}

func (c *crowd) once(ctx context.Context, s service, after func()) {
	asked := time.Now()
	var waited time.Duration
	if err := s.turn(ctx, func() { waited = time.Since(asked); c.change() }); err != nil {
		return // it is tried again: the longest wait is per try
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns[s.name]++
	c.waits[s.name] = max(c.waits[s.name], waited.Round(time.Millisecond))
	after()
}

// change is what must not overlap.
func (c *crowd) change() {
	if c.inside.Add(1) != 1 {
		c.overlaps.Add(1)
	}
	n := c.counter.Load()
	time.Sleep(c.work)
	c.counter.Store(n + 1)
	c.inside.Add(-1)
}

// check compares the counter with the turns.
func (c *crowd) check(t *testing.T) {
	t.Helper()
	require.Zero(t, c.overlaps.Load(), "two were inside at once")
	all := 0
	for _, n := range c.turns {
		all += n
	}
	require.EqualValues(t, all, c.counter.Load(), "a change was lost")
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// ours starts a service on wllock, with the settings of the guide.
func ours(t *testing.T, s *redistest.Server, name string, lib library, gap time.Duration) service {
	t.Helper()
	return on(name, locker(t, s, lib.pattern, gap), lib.do)
}

// on is a service with a Locker.
func on(name string, l *wllock.Locker, do do, opts ...wllock.CallOption) service {
	return service{name, func(ctx context.Context, work func()) error {
		return do(ctx, l, func(context.Context) error { work(); return nil }, opts...)
	}}
}

// locker is that of a process: WLLOCK_REDIS_KEY, WLLOCK_REDIS_INTEROP_GAP.
func locker(t *testing.T, s *redistest.Server, pattern config.KeyPattern, gap time.Duration) *wllock.Locker {
	t.Helper()
	c := config.Default()
	c.SystemName, c.Backend, c.RedisKey, c.RedisInteropGap = "shop", config.NewURL("redis://"+s.Addr), pattern, gap
	l, err := c.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}
