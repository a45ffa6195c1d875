package testlocker

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// Fleet is processes that compete for a lock, or for permits. They are killed (-9), and stopped for longer than their leases, and no more
// are ever inside than may be. TestMain calls [Child].
type Fleet struct {
	URL     func(i int) string // of the service, for the process i
	TTL     time.Duration
	Limit   int  // of permits, or 0 for the lock alone
	Lanes   int  // of each process: contenders, or callers for each permit
	Lockers bool // the callers ask a Locker
	// Disturb is what happens to the service meanwhile, again and again, unless it is nil.
	Disturb func(ctx context.Context, rnd *rand.Rand)
}

const fleetSize = 4 // processes

// Run runs the fleet, longer in `make test-long`.
func (f Fleet) Run(t *testing.T) {
	file := t.TempDir() + "/gates"
	gates, err := testproc.OpenTurnstile(file)
	if err != nil {
		t.Fatal(err)
	}
	start := func(i int) *process {
		return part{URL: f.URL(i), Key: "shop:fleet:1", TTL: f.TTL, Limit: f.Limit, Lanes: f.Lanes, Lockers: f.Lockers, Gates: file}.start(t)
	}
	var all []*process
	for i := range fleetSize {
		all = append(all, start(i))
	}
	rnd := testseed.Rand(t)
	lasting := testscope.Scale(max(3*time.Second, 5*f.TTL), time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	var faults sync.WaitGroup
	if own := rand.New(rand.NewPCG(rnd.Uint64(), 2)); f.Disturb != nil {
		faults.Go(func() {
			for ctx.Err() == nil {
				f.Disturb(ctx, own)
			}
		})
	}
	kills, stops := 0, 0
	for ctx.Err() == nil {
		pause(ctx, f.TTL/6+upTo(rnd, f.TTL/3))
		i := rnd.IntN(len(all))
		if rnd.IntN(2) == 0 && gates.Gates.Load() < testproc.TurnstileGates-fleetSize*int64(f.gates()) {
			all[i].kill()
			all[i] = start(i)
			kills++
			continue
		}
		all[i].signal(syscall.SIGSTOP)
		pause(ctx, upTo(rnd, 3*f.TTL/2))
		all[i].signal(syscall.SIGCONT)
		stops++
	}
	faults.Wait()
	t.Logf("%d entries in %v, at most %d inside; %d kills, %d stops, %d leases lost, %d errors", gates.Entries.Load(), lasting,
		gates.Most.Load(), kills, stops, gates.Lost.Load(), gates.Errors.Load())
	if n := gates.Over.Load(); n > 0 {
		t.Errorf("%d times more inside than may be", n)
	}
	if n := gates.Behind.Load(); n > 0 {
		t.Errorf("%d fences not above those of leases that had ended", n)
	}
	if n := gates.Entries.Load(); n < int64(lasting/f.TTL) || f.Limit > 1 && gates.Most.Load() < 2 {
		t.Errorf("%d entries, %d inside at once: the lock is hardly used", n, gates.Most.Load())
	}
}

// gates is how many a process takes at most.
func (f Fleet) gates() int { return max(f.Lanes, 2*f.Limit) }

// fleet is a process of one.
func (p part) fleet(b distributed.Backend) error {
	gates, err := testproc.OpenTurnstile(p.Gates)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if p.Lockers {
		return p.lockers(ctx, b, gates)
	}
	var all sync.WaitGroup
	for i := range p.Lanes {
		c := contender{b: b, gates: gates, most: max(p.Limit, 1), req: p.request(fmt.Sprint("fleet", os.Getpid(), "#", i))}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	return b.Close()
}

// contender enters again and again.
type contender struct {
	b     distributed.Backend
	gates *testproc.Turnstile
	most  int // inside
	req   distributed.Request
}

func (c *contender) run(ctx context.Context) {
	for gate := c.gates.Gate(); ctx.Err() == nil; {
		ended := c.gates.Ended.Load()
		if l := c.next(ctx); l != nil {
			c.use(ctx, l, gate, ended)
		}
	}
}

// next enters, and waits or gives up; nil: it has none.
func (c *contender) next(ctx context.Context) distributed.Lease {
	l, p, err := c.b.Enter(ctx, c.req)
	c.req.Prev = nil
	if err != nil {
		c.gates.Errors.Add(1)
	}
	if p == nil {
		return l
	}
	waits := 5 * time.Second
	if rand.IntN(50) == 0 {
		waits = rand.N(2 * time.Millisecond)
	}
	select {
	case l = <-p.Granted(): // nil: the place was lost
		return l
	case <-ctx.Done():
	case <-time.After(waits):
	}
	_ = p.Leave(ctx)
	return nil
}

func (c *contender) use(ctx context.Context, l distributed.Lease, gate *atomic.Int64, ended uint64) {
	fence, ok := l.NextFence()
	if !ok && rand.IntN(2) == 0 && l.Refill(ctx) == nil { // those of some backends are reserved by a question of their own
		fence, ok = l.NextFence()
	}
	if ok && fence <= ended && !hasEnded(l, time.Now()) {
		c.gates.Behind.Add(1)
	}
	c.gates.Enter(gate, l.Until(), c.most)
	if rand.IntN(4) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
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

// lockers is a process of a fleet whose callers ask a Locker.
func (p part) lockers(ctx context.Context, b distributed.Backend, gates *testproc.Turnstile) error {
	l, err := wllock.New("shop", b, wllock.WithLeaseTTL(p.TTL), wllock.WithMaxHandoffs(32), wllock.WithOwnedBackend())
	if err != nil {
		return err
	}
	free := make(chan *atomic.Int64, 2*p.Limit) // as many as can be inside, and some
	for range cap(free) {
		free <- gates.Gate()
	}
	var all sync.WaitGroup
	for range p.Lanes * p.Limit {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := l.Do(ctx, "fleet", "1", func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					goThrough(held, gates, <-free, free, p.Limit)
					return nil
				}, wllock.Permits(p.Limit)); err != nil {
					gates.Errors.Add(1)
				}
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return l.Close(closing)
}

// goThrough is what a caller does that has a permit. A fence may be smaller than that of a caller whose lease is still held, or was
// held when this one was granted, so it is not compared.
func goThrough(held *wllock.Held, gates *testproc.Turnstile, gate *atomic.Int64, free chan<- *atomic.Int64, limit int) {
	gates.Enter(gate, held.Until(), limit)
	if rand.IntN(1024) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	if held.Err() != nil {
		gates.Lost.Add(1)
	}
	gates.Leave(gate, held.Fence())
	free <- gate
}
