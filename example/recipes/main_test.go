package recipes_test

import (
	"context"
	"errors"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/redistest"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(podVariable); args != "" {
		if err := pod(args); err != nil {
			log.Fatal(err)
		}
		return
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

// open returns the Locker of one more process: it has connections of its own.
func open(t testing.TB, redis *redistest.Server, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	backend, err := redislock.Open("redis://" + redis.Addr)
	require.NoError(t, err)
	l, err := wllock.New("shop", backend, append(opts, wllock.WithOwnedBackend())...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// database returns connections to a database of its own, with the tables of the recipes.
func database(t testing.TB, rows ...string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dbtest.SharedPostgres(t).URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, statement := range append([]string{recipes.Schema}, rows...) {
		_, err = pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	return pool
}

// fences returns a Guard for a database of the recipes.
func fences(t testing.TB, pool *pgxpool.Pool) *fenced.Guard {
	t.Helper()
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	g, err := fenced.New(db, fenced.PostgreSQL)
	require.NoError(t, err)
	require.NoError(t, g.Migrate(t.Context()))
	return g
}

// query returns the one value that a query has.
func query[V any](t testing.TB, pool *pgxpool.Pool, sql string) (v V) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

// inEach calls fn n times at once for each Locker.
func inEach(lockers []*wllock.Locker, n int, fn func(l *wllock.Locker, i int)) {
	var all sync.WaitGroup
	for _, l := range lockers {
		for i := range n {
			all.Go(func() { fn(l, i) })
		}
	}
	all.Wait()
}

// patient calls fn again while others hold the lock for too long, as a client does.
func patient(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, wllock.ErrWaitTimeout) {
			return err
		}
	}
}

func openThree(t testing.TB, redis *redistest.Server, opts ...wllock.Option) []*wllock.Locker {
	t.Helper()
	return []*wllock.Locker{open(t, redis, opts...), open(t, redis, opts...), open(t, redis, opts...)}
}
