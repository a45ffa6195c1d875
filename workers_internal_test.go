package wllock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/memlock"
)

func idleWorkers(l *Locker) int {
	synctest.Wait()
	l.workers.mu.Lock()
	defer l.workers.mu.Unlock()
	return len(l.workers.idle)
}

func TestWorkersStayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New("test", memlock.New())
		require.NoError(t, err)
		key, nap := "k", time.Duration(0)
		call := WrapBatch(l, "n", func(int) string { return key }, func(context.Context, []*Item[int, int]) error {
			time.Sleep(nap)
			return nil
		})
		serve := func() {
			_, err := call(t.Context(), 1)
			require.NoError(t, err)
		}
		for range 3 {
			serve()
			synctest.Wait()
			serve()
			require.Equal(t, 1, idleWorkers(l), "the second batch is served by the same worker")
			time.Sleep(workerPatience)
			require.Zero(t, idleWorkers(l))
		}
		nap = time.Second
		for i := range 2 * maxIdleWorkers {
			key = string(rune('a' + i))
			go serve()
			synctest.Wait()
		}
		time.Sleep(nap)
		require.Equal(t, maxIdleWorkers, idleWorkers(l))
		require.NoError(t, l.Close(t.Context()))
		require.Zero(t, idleWorkers(l))
	})
}

// A worker that is called at the moment when its patience ends serves, or has gone and another one does.
func TestWorkersThatAreAboutToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New("test", memlock.New())
		require.NoError(t, err)
		call := WrapBatch(l, "n", func(int) string { return "k" }, func(context.Context, []*Item[int, int]) error { return nil })
		for range 200 {
			_, err := call(t.Context(), 1)
			require.NoError(t, err)
			time.Sleep(workerPatience)
		}
		go func() { time.Sleep(workerPatience); _, _ = call(context.Background(), 1) }()
		_, err = call(t.Context(), 1)
		require.NoError(t, err)
		time.Sleep(workerPatience)
		require.NoError(t, l.Close(t.Context()))
	})
}
