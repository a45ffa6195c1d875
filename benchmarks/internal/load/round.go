package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/benchmarks/internal/stats"
	"github.com/wllock/wllock/benchmarks/internal/warm"
	"github.com/wllock/wllock/distributed/memlock"
)

// drainTime bounds the wait for the calls in flight at the end of a round.
const drainTime = 20 * time.Second

// Round is what one contender did in one scenario over one link, once.
type Round struct {
	Seconds      float64 `json:"seconds"`
	Ops          int64   `json:"ops"`
	OpsPerSecond float64 `json:"ops_per_second"`
	Figures
	Failure   string         `json:"failure,omitempty"`
	ProxyLate *stats.Summary `json:"proxy_late,omitempty"` // how late packets were forwarded
	Told      int64          `json:"told,omitempty"`       // buyers that were told that they have bought, measured or not
	Books     *server.Books  `json:"books,omitempty"`      // what the database says of them
}

// Figures are what a round and a sum of rounds have.
type Figures struct {
	Latency         stats.Summary  `json:"latency"`
	HandOver        *stats.Summary `json:"hand_over,omitempty"`
	Wait            *stats.Summary `json:"wait,omitempty"` // for a permit
	JainGoroutines  float64        `json:"jain_goroutines"`
	JainInstances   float64        `json:"jain_instances"`
	CommandsPerOp   float64        `json:"commands_per_op"`
	ProcessCPUPerOp float64        `json:"process_cpu_ns_per_op"` // without the proxy's thread
	ServerCPUPerOp  float64        `json:"server_cpu_ns_per_op"`
	Violations      int64          `json:"violations"`
	Fences          int64          `json:"fences,omitempty"`        // checked
	FencesFallen    int64          `json:"fences_fallen,omitempty"` // not above the one before
	Failed          int64          `json:"failed"`
}

// Run measures one contender for duration, after a shorter time to warm up.
func (m Machine) Run(ctx context.Context, c contender.Contender, s Scenario, link Link, duration time.Duration) (r Round, err error) {
	s = s.shapeFor(c)
	if err := m.reset(ctx, c, s); err != nil {
		return Round{}, err
	}
	if link == Warm {
		cores, err := warm.Start()
		defer cores.Stop()
		if err != nil {
			return Round{}, err
		}
	}
	instances, err := m.open(c, s, link)
	if err == nil {
		r, err = m.measure(ctx, c, s, link, instances, duration*time.Duration(max(s.Longer, 1)))
	}
	for _, in := range instances {
		err = errors.Join(err, in.Close())
	}
	if err == nil && s.Sale {
		err = m.audit(ctx, c, &r)
	}
	return r, err
}

// reset forgets the round before.
func (m Machine) reset(ctx context.Context, c contender.Contender, s Scenario) error {
	err := m.Stores[c.Store].Flush(ctx)
	if c.Locks {
		err = errors.Join(err, m.Stores[server.Redis].Flush(ctx))
	}
	if s.Sale {
		err = errors.Join(err, m.Stores[c.Store].OpenShop(ctx))
	}
	return err
}

// open returns instances that are to be closed, also with an error.
func (m Machine) open(c contender.Contender, s Scenario, link Link) (all []contender.Instance, err error) {
	o := contender.Options{Addr: m.addr(c.Store, link), Memory: memlock.New(), Workers: s.Workers, Locker: s.Locker}
	if c.Locks {
		o.Locks = m.addr(server.Redis, link)
	}
	for range s.Instances {
		in, err := c.Open(o)
		if err != nil {
			return all, fmt.Errorf("open %s: %w", c.Name, err)
		}
		all = append(all, in)
	}
	return all, nil
}

func (m Machine) measure(ctx context.Context, c contender.Contender, s Scenario, link Link,
	instances []contender.Instance, duration time.Duration,
) (Round, error) {
	var phase atomic.Int32
	workers, cells := newWorkers(c, s, instances, &phase)
	// redislock gives up after one TTL unless its context ends later; so does this one, later than any round.
	calls, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { w.run(calls) })
	}
	pause(ctx, warmUp(c, s, duration))
	waitForAll(ctx, workers, s.Settle)
	before, err := m.gauge(ctx, c)
	phase.Store(measuring)
	pause(ctx, duration)
	stopped := time.Now()
	phase.Store(stopping)
	after, err2 := m.gauge(ctx, c)
	cancel() // ends all waits
	drained := drain(&wg)
	if err = errors.Join(err, err2, drained, ctx.Err()); err != nil {
		return Round{}, err
	}
	r := sum(s, workers, cells)
	r.Latency.Max = max(r.Latency.Max, longestWait(workers, stopped))
	m.account(&r, c, link, before, after)
	return r, nil
}

// settleTime is longer than a sixth of the lease TTL. A holder whose service pushes nothing, or over Redlock did not when others
// began to wait, hears of them after that time: it belongs to the start of a process, not to what is measured.
const settleTime = time.Second

// warmUp is how long a contender runs before it is measured.
func warmUp(c contender.Contender, s Scenario, duration time.Duration) time.Duration {
	pushes := c.Store == server.Redis || c.Store == server.ZooKeeper || c.Store == server.Memory
	if pushes || s.Settle > 0 { // the locks are over one Redis
		return duration / 5
	}
	return min(settleTime, 4*duration) // short rounds are for a quick look
}

// waitForAll waits until every worker has been served once, so that latencies of a long queue are those of a full one.
func waitForAll(ctx context.Context, workers []*worker, atMost time.Duration) {
	for end := time.Now().Add(atMost); ctx.Err() == nil && time.Now().Before(end); pause(ctx, 10*time.Millisecond) {
		if !slices.ContainsFunc(workers, func(w *worker) bool { return !w.served.Load() }) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func drain(wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(drainTime):
		return fmt.Errorf("calls did not return within %v of their context's end", drainTime)
	}
}

// longestWait is that of the calls that had not returned when the round ended. It counts only as the maximum.
func longestWait(workers []*worker, stopped time.Time) time.Duration {
	var longest time.Duration
	for _, w := range workers {
		longest = max(longest, stopped.Sub(w.begun))
	}
	return longest
}

// sum adds up the results of the workers, whose goroutines have ended.
func sum(s Scenario, workers []*worker, cells []cell) (r Round) {
	var latency, handOver, wait stats.Histogram
	var inside, entered int64
	perWorker, perInstance := make([]int64, len(workers)), make([]int64, s.Instances)
	for i, w := range workers {
		perWorker[i] = w.did.Ops
		perInstance[w.number-1] += w.did.Ops
		r.Ops += w.did.Ops
		r.Told += w.did.Told
		r.Failure = cmp.Or(r.Failure, w.did.Failure)
		r.Add(w.did.Figures)
		latency.Merge(&w.latency)
		handOver.Merge(&w.handOver)
		wait.Merge(&w.wait)
		inside += w.inside
	}
	for i := range cells {
		entered += cells[i].entered
	}
	if entered != inside {
		r.Violations++ // increments were lost
	}
	r.Latency = latency.Summary()
	if s.HandOvers {
		r.HandOver = new(handOver.Summary())
	}
	if s.Permits > 0 {
		r.Wait = new(wait.Summary())
	}
	r.JainGoroutines, r.JainInstances = stats.Jain(perWorker), stats.Jain(perInstance)
	return r
}

// Add adds what is counted.
func (f *Figures) Add(o Figures) {
	f.Violations += o.Violations
	f.Fences += o.Fences
	f.FencesFallen += o.FencesFallen
	f.Failed += o.Failed
}
