package redislock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// TestAFleetNeverHoldsTooManyPermits: processes that compete for permits are killed (-9) and stopped for longer than their leases, and
// no more are ever inside than there are permits. WLLOCK_FLEET is for how long.
func TestAFleetNeverHoldsTooManyPermits(t *testing.T) {
	t.Parallel()
	const permits, lanes = 8, 5
	for _, of := range []string{"contenders", "lockers"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			permitsOfAFleet(t, of, permits, lanes)
		})
	}
}

// permitsOfAFleet: each process has so many contenders at the backend, or a Locker with as many callers for each.
func permitsOfAFleet(t *testing.T, of string, permits, lanes int) {
	t.Helper()
	lasting := testscope.Scale(3*time.Second, time.Minute)
	pause := testscope.Scale(100*time.Millisecond, 500*time.Millisecond) // fewer kills, because each takes new gates
	if d, err := time.ParseDuration(os.Getenv("WLLOCK_FLEET")); err == nil {
		lasting = d
	}
	s := redistest.Start(t)
	file := t.TempDir() + "/gates"
	gates, err := testproc.OpenTurnstile(file)
	require.NoError(t, err)
	rnd := rand.New(rand.NewPCG(testseed.Seed(t), 1))
	start := func() *child {
		return startRole(t, "fleet", s.Addr, key(t), testTTL.String(), strconv.Itoa(permits), strconv.Itoa(lanes), file, of)
	}
	fleet := []*child{start(), start(), start(), start()}
	killed, stopped, begin := 0, 0, time.Now()
	for time.Since(begin) < lasting {
		time.Sleep(pause + rand.N(2*pause))
		i := rnd.IntN(len(fleet))
		if rnd.IntN(2) == 0 && gates.Gates.Load() < testproc.TurnstileGates-8*int64(lanes) {
			fleet[i].signal(syscall.SIGKILL)
			_ = fleet[i].cmd.Wait()
			fleet[i] = start()
			killed++
			continue
		}
		fleet[i].signal(syscall.SIGSTOP)
		time.Sleep(rand.N(3 * testTTL / 2))
		fleet[i].signal(syscall.SIGCONT)
		stopped++
	}
	t.Logf("%d entries in %v, at most %d inside; %d kills, %d stops, %d leases lost, %d errors", gates.Entries.Load(), time.Since(begin).Round(time.Second),
		gates.Most.Load(), killed, stopped, gates.Lost.Load(), gates.Errors.Load())
	require.Zero(t, gates.Over.Load(), "more inside than there are permits")
	require.Zero(t, gates.Behind.Load(), "fences below those of leases that had ended")
	require.Greater(t, gates.Most.Load(), int64(1), "the permits are used")
	require.Greater(t, gates.Entries.Load(), int64(lasting/(20*time.Millisecond)))
}

// runFleet is a process of the fleet: limit, contenders, file, of what.
func runFleet(addr, key string, ttl time.Duration, more []string) {
	limit, _ := strconv.Atoi(more[0])
	lanes, _ := strconv.Atoi(more[1])
	gates, err := testproc.OpenTurnstile(more[2])
	if err != nil {
		panic(err)
	}
	b, err := New(redis.NewClient(&redis.Options{Addr: addr}))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if more[3] == "lockers" {
		runLockers(ctx, b, ttl, gates, limit, lanes*limit)
		return
	}
	var all sync.WaitGroup
	for i := range lanes {
		c := contender{b: b, gates: gates, limit: limit, req: distributed.Request{
			Key: key, Instance: fmt.Sprint("fleet", os.Getpid(), "#", i), Mode: distributed.Shared, Limit: limit, TTL: ttl,
		}}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	_ = b.Close()
}

// contender asks for permits, one after the other.
type contender struct {
	b     *Backend
	gates *testproc.Turnstile
	limit int
	req   distributed.Request
}

func (c *contender) run(ctx context.Context) {
	gate := c.gates.Gate()
	for ctx.Err() == nil {
		ended := c.gates.Ended.Load()
		l := c.next(ctx)
		if l == nil {
			continue
		}
		fence, _ := l.NextFence()
		if fence <= ended {
			c.gates.Behind.Add(1)
		}
		c.gates.Enter(gate, l.Until(), c.limit)
		if rand.IntN(4) == 0 {
			time.Sleep(rand.N(2 * time.Millisecond))
		}
		if !l.Healthy() {
			c.gates.Lost.Add(1)
		}
		c.gates.Leave(gate, fence)
		c.req.Prev = nil
		if rand.IntN(2) == 0 {
			c.req.Prev = l
		} else {
			_ = l.Release(ctx)
		}
	}
}

// next enters, and waits or gives up; nil: it has none.
func (c *contender) next(ctx context.Context) distributed.Lease {
	l, p, err := c.b.Enter(ctx, c.req)
	c.req.Prev = nil
	if err != nil {
		c.gates.Errors.Add(1)
		return nil
	}
	if p == nil {
		return l
	}
	patience := 5 * time.Second
	if rand.IntN(50) == 0 {
		patience = rand.N(2 * time.Millisecond)
	}
	select {
	case l := <-p.Granted(): // nil: the place was lost
		return l
	case <-ctx.Done():
	case <-time.After(patience):
	}
	_ = p.Leave(ctx)
	return nil
}
