package doors

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-co-op/gocron/v2"

	"github.com/wllock/wllock"
)

// Jobs is the Locker of gocron (gocron.WithDistributedLocker): a job runs in one process at a time, or, with wllock.WithHoldAtLeast
// among the options, once per tick in all processes. The lock of a job is system:Name:job.
//
// The job's context does not end when the lock is lost, or after WithLockTimeMax (10 s by default). A job that must stop then calls Do itself.
type Jobs struct {
	Locker  *wllock.Locker
	Name    string              // second part of the lock's name: "cron"
	Options []wllock.CallOption // beside NoWait: WithHoldAtLeast, WithLockTimeMax
}

// Lock implements gocron.Locker. An error keeps the job from running in this process: wllock.ErrHeld says that another has it.
func (j Jobs) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	opts := append([]wllock.CallOption{wllock.NoWait()}, j.Options...)
	lock, err := j.Locker.Acquire(ctx, j.Name, keyOf(job), opts...)
	if err != nil {
		return nil, err
	}
	return running{lock}, nil
}

// running is the lock of a job that runs.
type running struct{ lock *wllock.Lock }

// Unlock implements gocron.Lock.
func (r running) Unlock(context.Context) error { return release(r.lock) }

// Leader is the Elector of gocron (gocron.WithDistributedElector): jobs begin in the process that has the lock system:Name:Key, until it ends
// or loses it. A job that runs then goes on, beside those that the next leader begins.
type Leader struct {
	Locker *wllock.Locker
	Name   string // second part of the lock's name: "leader"
	Key    string // one for each set of schedulers: "cron"

	held atomic.Pointer[wllock.Held]
}

// Run leads, or waits to lead, until ctx ends. It runs beside the scheduler.
func (l *Leader) Run(ctx context.Context) error {
	return l.Locker.Lead(ctx, l.Name, l.Key, func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		l.held.Store(held)
		<-ctx.Done()
		return ctx.Err()
	})
}

var errNotLeader = errors.New("doors: gocron: another process leads")

// IsLeader implements gocron.Elector.
func (l *Leader) IsLeader(context.Context) error {
	if held := l.held.Load(); held != nil {
		return held.Err()
	}
	return errNotLeader
}
