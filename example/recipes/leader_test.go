package recipes_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// Three processes: each mail is sent once and in order, also when the leader changes twice.
func TestOutboxIsSentByOneLeaderAfterTheOther(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	t.Parallel()
	redis := redistest.Start(t)
	pool := database(t)
	guard := fences(t, pool)
	var mu sync.Mutex // guards sent and by
	var sent []int64
	by := map[int]bool{}
	var all sync.WaitGroup
	ends := map[int]context.CancelFunc{}
	for i := range 3 {
		ctx, end := context.WithCancel(t.Context())
		ends[i] = end
		o := &recipes.Outbox{
			Locker: open(t, redis, wllock.WithLeaseTTL(time.Second)), Fences: guard, Every: 10 * time.Millisecond,
			Send: func(_ context.Context, id int64, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				sent, by[i] = append(sent, id), true
				return nil
			},
		}
		all.Go(func() { assert.ErrorIs(t, o.Run(ctx), context.Canceled) })
	}
	for n := 1; n <= 3; n++ {
		_, err := pool.Exec(t.Context(), `INSERT INTO outbox (mail) SELECT 'hello' FROM generate_series(1, 10)`)
		require.NoError(t, err)
		redistest.Eventually(t, 20*time.Second, "an empty outbox", func() bool { return query[int](t, pool, `SELECT count(*) FROM outbox`) == 0 })
		mu.Lock()
		assert.Len(t, by, n)
		for leader := range by {
			ends[leader]() // it hands over
		}
		mu.Unlock()
	}
	all.Wait()
	require.Len(t, sent, 30)
	for i, id := range sent {
		require.EqualValues(t, i+1, id)
	}
	require.Positive(t, query[int64](t, pool, `SELECT writer FROM wllock_fences`))
}
