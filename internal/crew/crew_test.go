package crew

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func idle(c *Crew[func()]) int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle)
}

func newCrew() *Crew[func()] { return New(func(job func()) { job() }) }

func TestWorkersStayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		for range 3 {
			c.Do(func() {})
			require.Equal(t, 1, idle(c))
			c.Do(func() {})
			require.Equal(t, 1, idle(c), "the second job is done by the same worker")
			time.Sleep(patience)
			require.Zero(t, idle(c))
		}
		for range 2 * maxIdle {
			c.Do(func() { time.Sleep(time.Second) })
		}
		time.Sleep(time.Second)
		require.Equal(t, maxIdle, idle(c))
		require.NoError(t, c.Close(t.Context()))
		require.Zero(t, idle(c))
	})
}

// A worker that is called at the moment when its patience ends does the job, or has gone and another one does.
func TestWorkersThatAreAboutToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		for range 200 {
			done := make(chan struct{})
			c.Do(func() { close(done) })
			<-done
			time.Sleep(patience)
		}
		done := make(chan struct{}, 2)
		job := func() { done <- struct{}{} }
		go func() { time.Sleep(patience); c.Do(job) }()
		c.Do(job)
		<-done
		<-done
		require.NoError(t, c.Close(t.Context()))
	})
}

// Close waits for the jobs under way, also for one that ends its goroutine. A job that comes later is done all the same.
func TestCloseWaitsForAllJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		until, late := make(chan struct{}), make(chan struct{})
		c.Do(func() { <-until; runtime.Goexit() })
		closed := make(chan error, 1)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(until)
		require.NoError(t, <-closed)
		c.Do(func() { close(late) })
		<-late
		synctest.Wait()
		require.NoError(t, c.Close(t.Context()))
	})
}
