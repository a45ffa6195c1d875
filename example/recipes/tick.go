package recipes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/doors"
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

// Gocron is the scheduler of a process: gocron.
func Gocron(locker *wllock.Locker, report func(context.Context) error) (gocron.Scheduler, error) {
	jobs := doors.Jobs{Locker: locker, Name: "cron", Options: []wllock.CallOption{
		wllock.WithHoldAtLeast(30 * time.Second), wllock.WithLockTimeMax(30 * time.Second),
	}}
	schedule, err := gocron.NewScheduler(gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(jobs))
	if err != nil {
		return nil, err
	}
	everyMinute := gocron.CronJob("* * * * *", false)
	_, err = schedule.NewJob(everyMinute, gocron.NewTask(report), gocron.WithName("report"))
	return schedule, err
}
