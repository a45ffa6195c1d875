package recipes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// What tells this program to be a process of TestThreeProcessesTick: the scheduler, and its parameters.
const (
	schedulerVariable = "RECIPES_SCHEDULER"
	redisVariable     = "RECIPES_REDIS"
	lateVariable      = "RECIPES_LATE"
	untilVariable     = "RECIPES_UNTIL"
)

// period is the time between two ticks, and seconds its crontab. Half of it is more than a busy machine delays a process.
const (
	period  = 2
	seconds = "*/2 * * * * *"
)

// Three real processes with late clocks over one Redis, for each scheduler.
func TestThreeProcessesTick(t *testing.T) {
	testscope.Long(t, "takes 8 s")
	t.Parallel()
	redis := redistest.Start(t)
	const ticks = 2
	from := time.Now().Unix()/period*period + 2*period // all have started by then
	until := from + ticks*period
	outputs := map[string]chan []byte{"cron": make(chan []byte, 3), "gocron": make(chan []byte, 3)}
	for scheduler, output := range outputs {
		for i := range 3 {
			process := exec.CommandContext(t.Context(), os.Args[0])
			process.Env = append(os.Environ(), schedulerVariable+"="+scheduler, redisVariable+"=redis://"+redis.Addr,
				lateVariable+"="+(time.Duration(i)*100*time.Millisecond).String(), fmt.Sprint(untilVariable, "=", until))
			go func() {
				out, err := process.CombinedOutput()
				assert.NoError(t, err, "%s", out)
				output <- out
			}()
		}
	}
	for scheduler, output := range outputs {
		runs := map[int64]int{}
		for range 3 {
			for line := range strings.Lines(string(<-output)) {
				tick, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
				require.NoError(t, err, "%q", line)
				runs[tick]++
			}
		}
		for tick := from; tick < until; tick += period {
			assert.Equal(t, 1, runs[tick], "%s: tick %d of %v", scheduler, tick, runs)
		}
	}
}

// schedulerProcess is one of the processes. It prints the tick of each run.
func schedulerProcess(scheduler string) {
	late, err := time.ParseDuration(os.Getenv(lateVariable))
	check(err)
	until, err := strconv.ParseInt(os.Getenv(untilVariable), 10, 64)
	check(err)
	backend, err := redislock.Open(os.Getenv(redisVariable))
	check(err)
	l, err := wllock.New("shop", backend, wllock.WithOwnedBackend())
	check(err)
	stop := map[string]func(*wllock.Locker, time.Duration) func(){"cron": cronProcess, "gocron": gocronProcess}[scheduler](l, late)
	time.Sleep(time.Until(time.Unix(until, 0)) - 100*time.Millisecond) // before the next tick
	stop()
	check(l.Close(context.Background()))
}

func tell(context.Context) error {
	_, err := fmt.Println(time.Now().Unix() / period * period)
	return err
}

func cronProcess(l *wllock.Locker, late time.Duration) (stop func()) {
	once := recipes.Once(context.Background(), l, "cron", time.Second, tell)
	c := cron.New(cron.WithSeconds())
	_, err := c.AddFunc(seconds, func() { time.Sleep(late); once() })
	check(err)
	c.Start()
	return func() { <-c.Stop().Done() }
}

func gocronProcess(l *wllock.Locker, late time.Duration) (stop func()) {
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(skewed{recipes.Ticks{Locker: l, AtLeast: time.Second}, late}))
	check(err)
	_, err = s.NewJob(gocron.CronJob(seconds, true), gocron.NewTask(tell), gocron.WithName("gocron"))
	check(err)
	s.Start()
	return func() { check(s.Shutdown()) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
