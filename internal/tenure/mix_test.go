package tenure_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/local"
)

// The mixture has several instances share a backend, with callers that do everything at random, and checks invariants.
const (
	mixCalls    = 600_000 // in the long run; a tenth of it otherwise
	mixFixtures = 3
	mixWorkers  = 8                // per fixture
	longTTL     = 20 * time.Second // no lease expires, however loaded the machine
	shortTTL    = 100 * time.Millisecond
	// mixPatience, in minutes, is many times what a run takes: after that somebody waits for ever.
	mixPatience = 20
)

// mix is one run.
type mix struct {
	left   atomic.Int64
	inside atomic.Int64 // -1: a writer; n: readers
	fence  uint64       // of the last writer; guarded by nothing but the lock that is tested
	fences sync.Map     // of all writers
	lossy  bool         // leases get lost: then only the fences tell the order
	broken atomic.Pointer[string]

	in, refused, lost atomic.Int64
}

func (m *mix) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.broken.CompareAndSwap(nil, &text)
	m.left.Store(0)
}

func TestMixture(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	for name, lossy := range map[string]bool{"leases hold": false, "leases get lost": true} {
		t.Run(name, func(t *testing.T) {
			seed, ttl := testseed.Seed(t), longTTL
			if lossy {
				ttl = shortTTL
			}
			m, backend := &mix{lossy: lossy}, memlock.New()
			m.left.Store(int64(testscope.Scale(mixCalls/10, mixCalls)))
			fixtures := []*fixture{
				newMixFixture(t, backend, ttl, "a", handoffs(4), longest(time.Millisecond)),
				newMixFixture(t, backend, ttl, "b", lingering(5*time.Millisecond)),
				newMixFixture(t, backend, ttl, "c", handoffs(0), lingering(time.Millisecond)),
			}
			m.run(t, seed, fixtures, backend)
			for _, f := range fixtures {
				f.shut()
				require.Eventually(t, f.drained, 10*time.Second, time.Millisecond)
				f.group.Stop()
			}
			_, _, err := backend.Enter(t.Context(), distributed.Request{Key: key, Instance: "last", TTL: ttl, NoWait: true})
			assert.NoError(t, err, "somebody still holds it")
			require.NoError(t, backend.Close())
		})
	}
}

func newMixFixture(t *testing.T, backend distributed.Backend, ttl time.Duration, name string, opts ...option) *fixture {
	return newFixture(t, backend, append(opts, named(name), func(c *tenure.Config) { c.TTL = ttl })...)
}

func (m *mix) run(t *testing.T, seed uint64, fixtures []*fixture, backend *memlock.Backend) {
	var all sync.WaitGroup
	for i, f := range fixtures {
		for j := range mixWorkers {
			w := &worker{mix: m, fixture: f, rand: rand.New(rand.NewPCG(seed, uint64(i*mixWorkers+j)))}
			all.Go(w.work)
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	patience := time.After(time.Duration(testscope.Scale(mixPatience/10, mixPatience)) * time.Minute)
	forget := time.NewTicker(3 * time.Millisecond)
	defer forget.Stop()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-forget.C:
			if m.lossy {
				backend.Expire(key)
			}
		case <-patience:
			t.Fatal("somebody waits for ever")
		}
	}
	if text := m.broken.Load(); text != nil {
		t.Fatal(*text)
	}
	t.Logf("in %d, refused %d, lost %d", m.in.Load(), m.refused.Load(), m.lost.Load())
	require.Positive(t, m.in.Load())
	require.Positive(t, m.refused.Load())
	require.Equal(t, m.lossy, m.lost.Load() > 0)
}

type worker struct {
	*mix
	fixture *fixture
	rand    *rand.Rand
}

func (w *worker) work() {
	for w.left.Add(-1) >= 0 {
		w.call()
	}
}

func (w *worker) percent(n int) bool { return w.rand.IntN(100) < n }

func (w *worker) call() {
	c := w.fixture.newCaller(tenure.Ask{Mode: exclusive, NoWait: w.percent(5)})
	defer c.cancel()
	if w.percent(50) {
		c.ask.Mode = shared
	}
	if w.percent(20) {
		c.ask.Deadline = time.Now().Add(time.Duration(w.rand.IntN(2000)) * time.Microsecond)
	}
	if w.percent(10) {
		time.AfterFunc(time.Duration(w.rand.IntN(2000))*time.Microsecond, c.cancel)
	}
	switch err := c.enter(); outcome(err) {
	case "in":
		w.stay(c)
	case "canceled", "timeout", "local timeout", "held", "busy":
		w.refused.Add(1)
	default:
		w.fail("unexpected: %v", err)
	}
}

// stay is the time of one caller under the lease.
func (w *worker) stay(c *caller) {
	w.in.Add(1)
	if c.ask.Mode == exclusive {
		if _, twice := w.fences.LoadOrStore(c.use.Fence(), true); twice {
			w.fail("fence %d twice", c.use.Fence())
		}
	}
	if !w.lossy {
		w.look(c)
	}
	if w.percent(2) {
		time.Sleep(time.Duration(w.rand.IntN(1000)) * time.Microsecond)
	}
	if w.lossy && w.rand.IntN(2000) == 0 {
		time.Sleep(shortTTL / 3) // the renewal finds out that the lease is gone
	}
	if w.percent(1) {
		c.tenure.Overstay(&c.use)
	}
	if !w.lossy {
		w.inside.Add(map[distributed.Mode]int64{exclusive: 1, shared: -1}[c.ask.Mode])
	}
	w.ends(c)
}

// look checks that the caller excludes whom it should, and that fences grow.
func (w *worker) look(c *caller) {
	if c.ask.Mode == shared {
		if w.inside.Add(1) <= 0 || c.use.Fence() <= w.fence {
			w.fail("a reader beside a writer, or with fence %d after %d", c.use.Fence(), w.fence)
		}
		return
	}
	if !w.inside.CompareAndSwap(0, -1) || c.use.Fence() <= w.fence {
		w.fail("a writer beside another, or with fence %d after %d", c.use.Fence(), w.fence)
	}
	w.fence = c.use.Fence()
}

func (w *worker) ends(c *caller) {
	if in, _ := c.tenure.End(&c.use, time.Now()); !in {
		w.lost.Add(1)
		return
	}
	if w.percent(10) {
		if c.turn.Pass() == local.Kept {
			_ = c.tenure.ReleaseAndWait(context.Background(), &c.turn)
		}
		return
	}
	c.pass()
}
