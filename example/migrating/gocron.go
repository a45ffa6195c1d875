package migrating

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/wllock/wllock"
)

// Jobs is the Locker of gocron (gocron.WithDistributedLocker): a job runs in one process at a time, or, with wllock.WithHoldAtLeast
// among the options, once per tick in all processes. The lock of a job is system:Name:job.
type Jobs struct {
	Locker  *wllock.Locker
	Name    string              // second part of the lock's name: "cron"
	Options []wllock.CallOption // beside NoWait: WithHoldAtLeast, WithLockTimeMax
}

// Lock implements gocron.Locker. An error keeps the job from running in this process: wllock.ErrHeld says that another has it.
func (j Jobs) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	opts := append([]wllock.CallOption{wllock.NoWait()}, j.Options...)
	lock, err := j.Locker.Acquire(ctx, j.Name, job, opts...)
	if err != nil {
		return nil, err
	}
	return running{lock}, nil
}

// running is the lock of a job that runs.
type running struct{ lock *wllock.Lock }

// Unlock implements gocron.Lock.
func (r running) Unlock(ctx context.Context) error { return r.lock.Release(ctx) }
