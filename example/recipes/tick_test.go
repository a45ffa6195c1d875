package recipes_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/doors"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/testseed"
)

// skewed is the gocron.Locker of a process whose clock is late.
type skewed struct {
	gocron.Locker
	by time.Duration
}

func (s skewed) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	time.Sleep(s.by)
	return s.Locker.Lock(ctx, job)
}

// starter starts the scheduler of a process whose clock is late.
type starter func(t *testing.T, l *wllock.Locker, late, atLeast time.Duration, report wllock.Func) (stop func())

func startCron(t *testing.T, l *wllock.Locker, late, atLeast time.Duration, report wllock.Func) (stop func()) {
	return startEach(t, "* * * * *", late, recipes.Once(t.Context(), l, "report", atLeast, report))
}

// startEach starts the crontab of a process whose clock is late.
func startEach(t *testing.T, spec string, late time.Duration, job func()) (stop func()) {
	c := cron.New()
	_, err := c.AddFunc(spec, func() { time.Sleep(late); job() })
	require.NoError(t, err)
	c.Start()
	return func() { <-c.Stop().Done() }
}

func startGocron(t *testing.T, l *wllock.Locker, late, atLeast time.Duration, report wllock.Func) (stop func()) {
	jobs := doors.Jobs{Locker: l, Name: "cron", Options: []wllock.CallOption{wllock.WithHoldAtLeast(atLeast), wllock.WithLockTimeMax(atLeast)}}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(skewed{jobs, late}))
	require.NoError(t, err)
	_, err = s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(report), gocron.WithName("report"))
	require.NoError(t, err)
	s.Start()
	return func() { assert.NoError(t, s.Shutdown()) }
}

// The documented constructors, as they are; the clocks agree.
func startCrontab(t *testing.T, l *wllock.Locker, _, _ time.Duration, report wllock.Func) (stop func()) {
	c, err := recipes.Crontab(t.Context(), l, report)
	require.NoError(t, err)
	c.Start()
	return func() { <-c.Stop().Done() }
}

func startGocronAsDocumented(t *testing.T, l *wllock.Locker, _, _ time.Duration, report wllock.Func) (stop func()) {
	s, err := recipes.Gocron(l, report)
	require.NoError(t, err)
	s.Start()
	return func() { assert.NoError(t, s.Shutdown()) }
}

// fleet runs three processes whose clocks differ by up to 10 s, and returns how often the job ran in each minute.
func fleet(t *testing.T, minutes int, atLeast time.Duration, start starter) map[int64]int {
	rng := testseed.Rand(t)
	runs := map[int64]int{}
	synctest.Test(t, func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		var mu sync.Mutex // guards runs
		report := func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			runs[time.Now().Unix()/60]++
			return nil
		}
		for range 3 {
			l, err := wllock.New("shop", backend)
			require.NoError(t, err)
			defer func() { assert.NoError(t, l.Close(t.Context())) }()
			late := time.Duration(rng.Int64N(int64(10 * time.Second)))
			defer start(t, l, late, atLeast, report)()
		}
		time.Sleep(time.Duration(minutes)*time.Minute + 30*time.Second)
	})
	return runs
}

func TestJobRunsOncePerTick(t *testing.T) {
	const minutes = 100
	for name, start := range map[string]starter{
		"cron": startCron, "gocron": startGocron, "Crontab": startCrontab, "Gocron": startGocronAsDocumented,
	} {
		t.Run(name, func(t *testing.T) {
			runs := fleet(t, minutes, 30*time.Second, start)
			require.Len(t, runs, minutes)
			for minute, n := range runs {
				require.Equal(t, 1, n, "minute %d", minute)
			}
		})
	}
}

// Without WithHoldAtLeast, the second process finds the lock free.
func TestNoWaitAloneRunsAJobSeveralTimes(t *testing.T) {
	for name, start := range map[string]starter{"cron": startCron, "gocron": startGocron} {
		t.Run(name, func(t *testing.T) {
			total := 0
			for _, n := range fleet(t, 10, time.Nanosecond, start) {
				total += n
			}
			require.Greater(t, total, 15)
		})
	}
}

// "@every 1m" counts from the start of each process, so that the ticks of two processes may be 30 s apart.
func TestEveryTicksFromTheStartOfEachProcess(t *testing.T) {
	total := 0
	for _, n := range fleet(t, 10, 25*time.Second, func(t *testing.T, l *wllock.Locker, _, atLeast time.Duration, report wllock.Func) func() {
		time.Sleep(26 * time.Second) // started one after the other
		return startEach(t, "@every 1m", 0, recipes.Once(t.Context(), l, "report", atLeast, report))
	}) {
		total += n
	}
	require.Greater(t, total, 15)
}
