package recipes_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/wllocktest"
)

func TestJobsOfACustomerAreDoneInOrder(t *testing.T) {
	t.Parallel()
	const customers, jobs = 6, 10
	pool := database(t, fmt.Sprintf(`INSERT INTO jobs (customer, what) SELECT c, j FROM generate_series(1, %d) j, generate_series(1, %d) c ORDER BY j`,
		jobs, customers))
	guard := fences(t, pool)
	var mu sync.Mutex // guards done
	done := map[string][]string{}
	var now, most atomic.Int32 // jobs at once
	work := func(_ context.Context, customer, job string) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		done[customer] = append(done[customer], job)
		return nil
	}
	inEach(openThree(t, redistest.Start(t)), 2, func(l *wllock.Locker, _ int) {
		w := &recipes.Workers{Locker: l, Pool: pool, Fences: guard, Do: work}
		for assert.NoError(t, t.Context().Err()) && query[int](t, pool, `SELECT count(*) FROM jobs`) > 0 {
			_, err := w.Round(t.Context())
			assert.NoError(t, err)
		}
	})
	for c := range customers {
		var want []string
		for j := range jobs {
			want = append(want, fmt.Sprint(j+1))
		}
		require.Equal(t, want, done[fmt.Sprint(c+1)])
	}
	require.Greater(t, most.Load(), int32(1), "different customers are served at once")
}

// A worker whose lock was lost does not go on with the next job.
func TestOvertakenWorkerStops(t *testing.T) {
	t.Parallel()
	pool := database(t, `INSERT INTO jobs (customer, what) VALUES ('1', 'a'), ('1', 'b')`)
	var done []string
	w := &recipes.Workers{Locker: wllocktest.New(t), Pool: pool, Fences: fences(t, pool), Do: func(ctx context.Context, _, job string) error {
		done = append(done, job)
		_, err := pool.Exec(ctx, `UPDATE wllock_fences SET writer = writer + 1`) // a later holder
		return err
	}}
	_, err := w.Round(t.Context())
	require.ErrorIs(t, err, fenced.ErrFenced)
	require.Equal(t, []string{"a"}, done)
	require.EqualValues(t, 2, query[int64](t, pool, `SELECT count(*) FROM jobs`))
}
