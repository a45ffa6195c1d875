package doors

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

const job = "report"

// everyMinute runs the task in a scheduler until the test ends.
func everyMinute(t *testing.T, how gocron.SchedulerOption, from time.Time, task func()) {
	t.Helper()
	s, err := gocron.NewScheduler(how)
	require.NoError(t, err)
	_, err = s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(task), gocron.WithName(job), gocron.WithStartAt(gocron.WithStartDateTime(from)))
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
}

// TestJobsRunOncePerTick: schedulers whose clocks differ by more than the job takes.
func TestJobsRunOncePerTick(t *testing.T) {
	for _, c := range []struct {
		opts []wllock.CallOption
		runs int64
	}{
		{nil, 30}, // as with any lock that ends with the job
		{[]wllock.CallOption{wllock.WithHoldAtLeast(30 * time.Second)}, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, faults := wllocktest.NewWithFaults(t)
			var runs atomic.Int64
			begin := time.Now().Add(time.Minute)
			for i := range 3 {
				jobs := Jobs{faults.Process(), "cron", c.opts}
				everyMinute(t, gocron.WithDistributedLocker(jobs), begin.Add(time.Duration(i)*30*time.Millisecond), func() {
					runs.Add(1)
					time.Sleep(2 * time.Millisecond)
				})
			}
			time.Sleep(10*time.Minute + 30*time.Second)
			require.Equal(t, c.runs, runs.Load())
		})
	}
}

func TestJobsSaysWhyAJobDoesNotRun(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	release := wllocktest.Hold(t, faults.Process(), "cron", job)
	_, err := Jobs{Locker: l, Name: "cron"}.Lock(t.Context(), job)
	require.ErrorIs(t, err, wllock.ErrHeld)
	release()
	lock, err := Jobs{Locker: l, Name: "cron"}.Lock(t.Context(), job)
	require.NoError(t, err)
	faults.Lose("cron", job)
	require.ErrorIs(t, errors.Join(lock.Unlock(t.Context()), lock.Unlock(t.Context())), wllock.ErrLeaseLost)
}

// TestLeaderRunsTheJobs: one of three at each tick. When it ends, and when its lock is lost, another one goes on.
func TestLeaderRunsTheJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faults := wllocktest.NewWithFaults(t)
		var runs [3]atomic.Int64
		var ends [3]context.CancelFunc
		begin := time.Now().Add(time.Minute)
		for i := range runs {
			leader := &Leader{Locker: faults.Process(), Name: "leader", Key: "cron"}
			ctx, end := context.WithCancel(t.Context())
			ends[i] = end
			ended := make(chan error, 1)
			go func() { ended <- leader.Run(ctx) }()
			t.Cleanup(func() { end(); require.ErrorIs(t, <-ended, context.Canceled) })
			everyMinute(t, gocron.WithDistributedElector(leader), begin, func() { runs[i].Add(1) })
		}
		leads := func(minutes int) (who int) { // alone
			t.Helper()
			for i := range runs {
				runs[i].Store(0)
			}
			time.Sleep(time.Duration(minutes) * time.Minute)
			who = -1
			for i := range runs {
				if n := runs[i].Load(); n != 0 {
					require.Equal(t, -1, who, "two lead")
					require.EqualValues(t, minutes, n)
					who = i
				}
			}
			require.NotEqual(t, -1, who, "none leads")
			return who
		}
		time.Sleep(30 * time.Second)
		first := leads(5)
		ends[first]()
		second := leads(5)
		require.NotEqual(t, first, second)
		faults.Lose("leader", "cron")
		time.Sleep(time.Second)
		require.NotEqual(t, second, leads(5))
	})
}
