package sqllock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
)

// openers open a Backend of a new process on one database, as users do.
var openers = map[string]func(t *testing.T) func(opts ...sqllock.Option) distributed.Backend{
	"sqlite": func(t *testing.T) func(...sqllock.Option) distributed.Backend {
		url := "sqlite://" + t.TempDir() + "/locks.db"
		return func(opts ...sqllock.Option) distributed.Backend { return must(t)(sqlite.Open(url, opts...)) }
	},
	"postgres": func(t *testing.T) func(...sqllock.Option) distributed.Backend {
		url := dbtest.SharedPostgres(t).URL()
		require.NoError(t, postgres.Migrate(t.Context(), url))
		return func(opts ...sqllock.Option) distributed.Backend { return must(t)(postgres.Open(url, opts...)) }
	},
	"postgres polling": func(t *testing.T) func(...sqllock.Option) distributed.Backend {
		url := dbtest.SharedPostgres(t).URL()
		require.NoError(t, postgres.Migrate(t.Context(), url))
		return func(opts ...sqllock.Option) distributed.Backend {
			return must(t)(postgres.Open(url, append(opts, sqllock.WithNotifier(nil))...))
		}
	},
	"mariadb": func(t *testing.T) func(...sqllock.Option) distributed.Backend {
		url := dbtest.SharedMariaDB(t).URL()
		require.NoError(t, mysql.Migrate(t.Context(), url))
		return func(opts ...sqllock.Option) distributed.Backend { return must(t)(mysql.Open(url, opts...)) }
	},
}

func must(t *testing.T) func(*sqllock.Backend, error) distributed.Backend {
	return func(b *sqllock.Backend, err error) distributed.Backend {
		t.Helper()
		require.NoError(t, err)
		return b
	}
}

const (
	hotInstances = 8
	hotCallers   = 16
)

// hot is a run of many callers of several processes on one key.
type hot struct {
	inside     atomic.Int32
	fence      atomic.Uint64
	violations atomic.Int32
	started    atomic.Bool // the run counts: all know of each other
	done       [hotInstances]atomic.Int64
}

// warmUp is the time after which all processes wait for each other: without notifications the first holder needs some to learn that it
// is not alone.
const warmUp = 700 * time.Millisecond

func (h *hot) work(ctx context.Context, instance int) error {
	held, _ := wllock.HeldFrom(ctx)
	if h.inside.Add(1) > 1 || h.fence.Swap(held.Fence()) >= held.Fence() {
		h.violations.Add(1)
	}
	h.inside.Add(-1)
	if h.started.Load() {
		h.done[instance].Add(1)
	}
	return nil
}

// run returns the operations per second.
func (h *hot) run(t *testing.T, open func(...sqllock.Option) distributed.Backend, d time.Duration, opts ...wllock.Option) float64 {
	ctx, cancel := context.WithTimeout(t.Context(), warmUp+d)
	defer cancel()
	var lockers []*wllock.Locker
	for range hotInstances {
		l, err := wllock.New("test", open(), append(opts, wllock.WithOwnedBackend())...)
		require.NoError(t, err)
		lockers = append(lockers, l)
	}
	var all sync.WaitGroup
	time.AfterFunc(warmUp, func() { h.started.Store(true) })
	for i, l := range lockers {
		for range hotCallers {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = l.Do(ctx, "product", "1", func(ctx context.Context) error { return h.work(ctx, i) })
				}
			})
		}
	}
	all.Wait()
	for _, l := range lockers {
		require.NoError(t, l.Close(context.Background()))
	}
	return float64(h.total()) / d.Seconds()
}

func (h *hot) total() (n int64) {
	for i := range h.done {
		n += h.done[i].Load()
	}
	return n
}

// jain is the index of fairness of R. Jain: 1 if all have done the same, 1/n if one has done it all.
func (h *hot) jain() float64 {
	var sum, squares float64
	for i := range h.done {
		x := float64(h.done[i].Load())
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (hotInstances * squares)
}

// Many callers on one key exclude each other, in the order of their fences, and the processes get the same share.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	d := testscope.Scale(1500*time.Millisecond, 10*time.Second)
	for name, start := range dbtest.Tested(openers) {
		t.Run(name, func(t *testing.T) {
			open := start(t)
			var with, without hot
			fast, slow := with.run(t, open, d), without.run(t, open, d, wllock.WithMaxHandoffs(0))
			t.Logf("%.0f ops/s, Jain %.3f; without tenures %.0f ops/s, Jain %.3f", fast, with.jain(), slow, without.jain())
			require.Zero(t, with.violations.Load()+without.violations.Load())
			require.GreaterOrEqual(t, with.jain(), 0.9)
			if !race.Enabled { // which slows the turns within a process, and not the database
				require.GreaterOrEqual(t, fast, 20*slow)
			}
		})
	}
}
