package recipes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/wllock/wllock"
)

// Once makes a job for a scheduler that every process runs: at each tick, one process runs it.
func Once(ctx context.Context, l *wllock.Locker, name string, atLeast time.Duration, job wllock.Func,
) cron.FuncJob {
	return func() {
		err := l.Do(ctx, "cron", name, job,
			wllock.NoWait(), wllock.WithHoldAtLeast(atLeast), wllock.WithLockTimeMax(atLeast))
		if err != nil && !errors.Is(err, wllock.ErrHeld) { // ErrHeld: another one runs it, or has run it
			slog.ErrorContext(ctx, "job failed", "job", name, "error", err)
		}
	}
}

// Crontab is the scheduler of a process: robfig/cron.
func Crontab(ctx context.Context, locker *wllock.Locker, report wllock.Func) (*cron.Cron, error) {
	schedule := cron.New(cron.WithLocation(time.UTC)) // the same hours everywhere
	_, err := schedule.AddJob("* * * * *", Once(ctx, locker, "report", 30*time.Second, report))
	return schedule, err
}

// Ticks is the Locker of a gocron scheduler: at each tick, one process runs the job. The key is its name.
type Ticks struct {
	Locker  *wllock.Locker
	AtLeast time.Duration // how long others stay out: half of the time between two ticks
}

// Lock implements gocron.Locker. After an error, gocron skips this tick.
func (t Ticks) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := t.Locker.Acquire(ctx, "cron", job,
		wllock.NoWait(), wllock.WithHoldAtLeast(t.AtLeast), wllock.WithLockTimeMax(t.AtLeast))
	if err != nil {
		return nil, err
	}
	return tick{lock}, nil
}

type tick struct{ lock *wllock.Lock }

// Unlock implements gocron.Lock. Others stay out until AtLeast has passed.
func (t tick) Unlock(ctx context.Context) error { return t.lock.Release(ctx) }

// Gocron is the scheduler of a process: gocron.
func Gocron(locker *wllock.Locker, report func(context.Context) error) (gocron.Scheduler, error) {
	schedule, err := gocron.NewScheduler(
		gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(Ticks{locker, 30 * time.Second}))
	if err != nil {
		return nil, err
	}
	everyMinute := gocron.CronJob("* * * * *", false)
	_, err = schedule.NewJob(everyMinute, gocron.NewTask(report), gocron.WithName("report"))
	return schedule, err
}
