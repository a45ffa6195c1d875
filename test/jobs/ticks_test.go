package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// schedule is that of a job: at every tick each process starts it, later by up to skew.
type schedule struct {
	base          time.Time
	period, least time.Duration
	ticks         int
}

func (s schedule) skew() time.Duration { return s.least / 2 }
func (s schedule) at(n int) time.Time  { return s.base.Add(time.Duration(n) * s.period) }

// run is one run of the job, as the store has it.
type run struct {
	Tick  int
	Call  int64 // when Do was called, in ns since 1970
	Start int64 // when the function was entered
}

const (
	runsKey = "runs" // list of what ran
	lateKey = "late" // set of ticks at which a process was later than the skew allows, or had another error than ErrHeld
)

// runTicks starts the job at each tick that is to come. base, period, least, ticks.
func runTicks(l *wllock.Locker, store *redis.Client, args []string) {
	base, err := strconv.ParseInt(args[0], 10, 64)
	must(err)
	ticks, err := strconv.Atoi(args[3])
	must(err)
	s := schedule{time.Unix(0, base), duration(args[1]), duration(args[2]), ticks}
	ctx := context.Background()
	must(l.Ping(ctx))
	for n := max(0, int(time.Since(s.base)/s.period)+1); n < s.ticks; n++ {
		time.Sleep(time.Until(s.at(n)) + rand.N(s.skew()))
		called := time.Now()
		err := l.Do(ctx, "cron", "job", func(context.Context) error {
			what, err := json.Marshal(run{n, called.UnixNano(), time.Now().UnixNano()})
			must(err)
			return store.RPush(ctx, runsKey, what).Err()
		}, wllock.NoWait(), wllock.WithHoldAtLeast(s.least))
		if err != nil && !errors.Is(err, wllock.ErrHeld) || time.Since(s.at(n)) > s.least {
			must(store.SAdd(ctx, lateKey, n).Err())
		}
	}
	fmt.Println("done")
	select {} // the lock of the last tick is still held
}

// TestOncePerTick: 3 processes start a job at each tick, later by up to half of d, and it runs once.
func TestOncePerTick(t *testing.T) { // rule N2
	testscope.Long(t, "takes 8 s")
	t.Parallel()
	s, r := ticks(t, func(children []*child, done <-chan struct{}) {})
	for n := range s.ticks {
		if !r.late[n] && !r.late[n-1] { // a late run at the one before may still keep the lock
			require.Len(t, r.ofTick[n], 1, "runs at tick %d", n)
		}
	}
	require.Less(t, len(r.late), s.ticks/2, "the machine is too slow for the test")
}

// TestNeverTwicePerTickWhenProcessesDie: the same, and they are killed at random. Ticks may be missed, if the process that has
// the lock dies.
func TestNeverTwicePerTickWhenProcessesDie(t *testing.T) { // rule N2
	testscope.Long(t, "kills processes, and waits for what they held")
	t.Parallel()
	random := testseed.Rand(t)
	kills := 0
	s, r := ticks(t, func(children []*child, done <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(random.Int64N(int64(600 * time.Millisecond)))):
			}
			c := children[random.IntN(len(children))]
			c.kill()
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			c.start()
			kills++
		}
	})
	ran := 0
	for n := range s.ticks {
		if len(r.ofTick[n]) > 0 {
			ran++
		}
		if !r.late[n] {
			require.LessOrEqual(t, len(r.ofTick[n]), 1, "runs at tick %d", n)
		}
	}
	t.Logf("%d kills: the job ran at %d of %d ticks", kills, ran, s.ticks)
	require.NotZero(t, ran)
}

type result struct {
	ofTick map[int][]run
	late   map[int]bool
}

// ticks runs a schedule on 3 processes, and requires that no two runs are nearer to each other than d. A run counts from when Do was
// called for the earlier one, and from when the function was entered for the later one: so a slow machine raises no alarm.
func ticks(t *testing.T, meanwhile func(children []*child, done <-chan struct{})) (schedule, result) {
	server := redistest.Start(t)
	s := schedule{base: time.Now().Add(2 * time.Second), period: 500 * time.Millisecond, least: 200 * time.Millisecond, ticks: testscope.Scale(12, 1000)}
	lines, over := make(chan line, 100), make(chan struct{})
	var children []*child
	for range 3 {
		children = append(children, startChild(t, lines, "ticks", server.Addr, "300ms", s.base.UnixNano(), s.period, s.least, s.ticks))
	}
	go func() {
		defer close(over)
		time.Sleep(time.Until(s.at(s.ticks - 1)))
	}()
	meanwhile(children, over)
	<-over
	time.Sleep(time.Second) // the last tick
	store := server.Client(func(o *redis.Options) { o.DB = 1 })
	r := result{ofTick: map[int][]run{}, late: map[int]bool{}}
	for _, n := range store.SMembers(t.Context(), lateKey).Val() {
		tick, err := strconv.Atoi(n)
		require.NoError(t, err)
		r.late[tick] = true
	}
	var before *run
	for _, text := range store.LRange(t.Context(), runsKey, 0, -1).Val() {
		var one run
		require.NoError(t, json.Unmarshal([]byte(text), &one))
		if before != nil {
			require.GreaterOrEqual(t, time.Duration(one.Start-before.Call), s.least, "ticks %d and %d", before.Tick, one.Tick)
		}
		before = &one
		r.ofTick[one.Tick] = append(r.ofTick[one.Tick], one)
	}
	t.Logf("%d ticks, %d of them with a process that was late", s.ticks, len(r.late))
	return s, r
}
