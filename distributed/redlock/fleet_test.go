package redlock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	// childVariable makes the test binary a process of a fleet: "contenders file servers...".
	childVariable = "WLLOCK_TEST_CHILD"
	fleetLanes    = 3
)

// TestAFleetNeverHoldsTwice: processes that compete for a lock are killed (-9) and stopped for longer than their leases, while fewer than
// half of the servers stand still or lose their data; no two are ever inside. Where each process reaches three servers, two majorities
// share one or two of them. WLLOCK_FLEET is for how long.
func TestAFleetNeverHoldsTwice(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	lasting := testscope.Scale(3*time.Second, time.Minute)
	if d, err := time.ParseDuration(os.Getenv("WLLOCK_FLEET")); err == nil {
		lasting = d
	}
	three := map[string]int{"three of five servers": 3}
	reaches := testscope.Scale(three, map[string]int{"three of five servers": 3, "all servers": 5})
	for name, n := range reaches {
		t.Run(name, func(t *testing.T) { locksOfAFleet(t, n, lasting) })
	}
}

func locksOfAFleet(t *testing.T, reaches int, lasting time.Duration) {
	t.Helper()
	f := &fleet{t: t, reaches: reaches, s: startFor(t, 5, huntTTL), file: t.TempDir() + "/gates", rnd: testseed.Rand(t)}
	gates, err := testproc.OpenTurnstile(f.file)
	require.NoError(t, err)
	for range 4 {
		f.all = append(f.all, f.start(len(f.all)))
	}
	var faults sync.WaitGroup
	begin := time.Now()
	defer faults.Wait()
	own := rand.New(rand.NewPCG(f.rnd.Uint64(), 2))
	faults.Go(func() { f.forget(own, begin.Add(lasting)) })
	for time.Since(begin) < lasting && gates.Gates.Load() < testproc.TurnstileGates-8*fleetLanes {
		f.disturb()
	}
	faults.Wait()
	t.Logf("%d entries in %v; %d kills, %d stops, %d servers stood still, %d forgot; %d leases lost, %d errors", gates.Entries.Load(),
		time.Since(begin).Round(time.Second), f.kills, f.stops, f.stills, f.forgot, gates.Lost.Load(), gates.Errors.Load())
	require.Zero(t, gates.Over.Load(), "two inside")
	require.Zero(t, gates.Behind.Load(), "fences below those of leases that had ended")
	require.Greater(t, gates.Entries.Load(), int64(lasting/(200*time.Millisecond)))
}

type fleet struct {
	t       *testing.T
	s       *servers
	reaches int // servers, of each process
	file    string
	rnd     *rand.Rand
	all     []*exec.Cmd
	kills   int
	stops   int
	stills  int
	forgot  int // of forget alone
}

// start starts the process i, which reaches the servers from i on.
func (f *fleet) start(i int) *exec.Cmd {
	words := []string{strconv.Itoa(fleetLanes), f.file}
	for j, one := range f.s.all {
		if n := len(f.s.all); (j-i+n)%n < f.reaches {
			words = append(words, one.Addr)
		} else {
			words = append(words, fmt.Sprint("127.0.0.1:", j+1)) // nobody listens there
		}
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childVariable+"="+strings.Join(words, " "))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, c.Start())
	f.t.Cleanup(func() {
		_ = in.Close()
		_ = c.Process.Signal(syscall.SIGCONT)
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// disturb kills or stops a process, or has a server stand still for less than a lease.
func (f *fleet) disturb() {
	time.Sleep(upTo(f.rnd, 200*time.Millisecond))
	i := f.rnd.IntN(len(f.all))
	switch f.rnd.IntN(3) {
	case 0:
		_ = f.all[i].Process.Kill()
		_ = f.all[i].Wait()
		f.all[i] = f.start(i)
		f.kills++
	case 1:
		_ = f.all[i].Process.Signal(syscall.SIGSTOP)
		time.Sleep(upTo(f.rnd, 3*huntTTL/2))
		_ = f.all[i].Process.Signal(syscall.SIGCONT)
		f.stops++
	case 2:
		one := f.s.all[f.rnd.IntN(len(f.s.all))]
		one.Pause()
		time.Sleep(upTo(f.rnd, huntTTL/2))
		one.Resume()
		f.stills++
	}
}

// forget has as many servers lose their data as may, and others when these count again.
func (f *fleet) forget(rnd *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		for _, i := range rnd.Perm(len(f.s.all))[:f.reaches/2] {
			c := f.s.all[i].Client()
			_ = c.FlushAll(context.Background()).Err()
			_ = c.Close()
			f.forgot++
		}
		time.Sleep(3*huntTTL + upTo(rnd, 2*huntTTL))
	}
}

// runChild is a process of the fleet, until its input ends.
func runChild(words []string) {
	lanes, _ := strconv.Atoi(words[0])
	gates, err := testproc.OpenTurnstile(words[1])
	if err != nil {
		panic(err)
	}
	var clients []redis.UniversalClient
	for _, addr := range words[2:] {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	b, err := New(clients, WithQuorumFences())
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var all sync.WaitGroup
	for i := range lanes {
		c := &contender{b: b, gates: gates, req: distributed.Request{
			Key: "k", Instance: fmt.Sprint("fleet", os.Getpid(), "#", i), TTL: huntTTL,
		}}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	_ = b.Close()
}

// contender asks for the lock, again and again.
type contender struct {
	b     *Backend
	gates *testproc.Turnstile
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
		fence := uint64(0)
		if rand.IntN(2) == 0 && l.Refill(ctx) == nil {
			if fence, _ = l.NextFence(); fence <= ended && fence > 0 && !hasEnded(l, time.Now()) {
				c.gates.Behind.Add(1)
			}
		}
		c.gates.Enter(gate, l.Until(), 1)
		if rand.IntN(2) == 0 {
			time.Sleep(rand.N(10 * time.Millisecond))
		}
		if !l.Healthy() {
			c.gates.Lost.Add(1)
		}
		c.gates.Leave(gate, fence)
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
