package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/doors"
	"github.com/wllock/wllock/internal/redistest"
)

const job = "report"

// redsyncJobs is the Locker that gocron's own for Redis is: a redsync mutex with the job's name. That package is not used itself, because it
// brings nothing else.
type redsyncJobs struct{ all *redsync.Redsync }

func (r redsyncJobs) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	m := r.all.NewMutex(job, redsync.WithTries(1))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncLock{m}, nil
}

type redsyncLock struct{ m *redsync.Mutex }

func (r redsyncLock) Unlock(ctx context.Context) error {
	_, err := r.m.UnlockContext(ctx)
	return err
}

func oldJobs(s *redistest.Server) gocron.Locker {
	return redsyncJobs{redsync.New(goredis.NewPool(s.Client()))}
}

func newJobs(t *testing.T, s *redistest.Server) gocron.Locker {
	t.Helper()
	return doors.Jobs{Locker: locker(t, s, "{key}", 0), Name: "cron"}
}

// schedule runs the task in a scheduler until the test ends.
func schedule(t *testing.T, l gocron.Locker, when gocron.JobDefinition, task func(), opts ...gocron.JobOption) {
	t.Helper()
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(l))
	require.NoError(t, err)
	_, err = s.NewJob(when, gocron.NewTask(task), append(opts, gocron.WithName(job))...)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
}

func TestGocronStep1SameKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	theirs, us := oldJobs(s), newJobs(t, s)
	for _, order := range [][2]gocron.Locker{{theirs, us}, {us, theirs}} {
		first, second := order[0], order[1]
		lock, err := first.Lock(t.Context(), job)
		require.NoError(t, err)
		_, err = second.Lock(t.Context(), job)
		require.Error(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		lock, err = second.Lock(t.Context(), job)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// crowded runs schedulers until each has run the job some times.
func crowded(t *testing.T, lockers map[string]gocron.Locker) {
	t.Helper()
	c := &crowd{work: time.Millisecond, turns: map[string]int{}, waits: map[string]time.Duration{}}
	done, left := make(chan struct{}), len(lockers)
	t.Run("until each has run it", func(t *testing.T) {
		for name, l := range lockers {
			schedule(t, l, gocron.DurationRandomJob(10*time.Millisecond, 40*time.Millisecond), func() {
				c.change()
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.turns[name]++; c.turns[name] == enough {
					if left--; left == 0 {
						close(done)
					}
				}
			})
		}
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("one starves")
		}
	})
	t.Log(c.turns)
	c.check(t)
}

func TestGocronStep2TheFirstServiceMoves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	crowded(t, map[string]gocron.Locker{"old 1": oldJobs(s), "old 2": oldJobs(s), "new": newJobs(t, s)})
}

func TestGocronStep3TheLastOneIsLeft(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	crowded(t, map[string]gocron.Locker{"old": oldJobs(s), "new 1": newJobs(t, s), "new 2": newJobs(t, s)})
}
