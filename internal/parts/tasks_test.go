package parts

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloseWaitsForTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks Tasks
		end, closed := make(chan struct{}), false
		require.True(t, tasks.Go(func() { <-end }))
		require.True(t, tasks.Begin())
		go func() { tasks.Close(); closed = true }()
		synctest.Wait()
		require.False(t, tasks.Begin(), "it is closed")
		require.False(t, tasks.Go(nil))
		close(end)
		synctest.Wait()
		require.False(t, closed, "one is left")
		tasks.Done()
		synctest.Wait()
		require.True(t, closed)
	})
}
