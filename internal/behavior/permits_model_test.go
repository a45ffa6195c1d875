package behavior

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// The model test of permits has three instances serve callers of one key at random: permits, exclusive callers among them, with
// waits, cancellations, NoWait, panics, functions that overstay, leases that are lost, and an n that changes. Episodes come in
// three kinds: calm ones check everything, in those with a changing n the largest bounds how many are inside, and
// when leases are lost only those that know of no loss are counted.
const (
	permitModelCalls   = 5_000_000
	permitModelEpisode = 500 // calls with one set of Lockers
)

func TestModelOfPermits(t *testing.T) {
	seed, calls := testseed.Seed(t), testscope.Scale(15_000, permitModelCalls)
	var all permitCounts
	for episode := range calls / permitModelEpisode {
		synctest.Test(t, func(t *testing.T) { newPermitModel(t, seed, uint64(episode), &all).run() })
		if t.Failed() {
			t.Fatalf("episode %d", episode)
		}
	}
	for what, n := range map[string]*atomic.Int64{"permits": &all.permits, "exclusive": &all.exclusive, "full": &all.full, "refused": &all.refused,
		"held": &all.held, "lost": &all.lost, "panicked": &all.panicked, "called": &all.handoffs} {
		require.Positive(t, n.Load(), what)
		t.Logf("%d %s", n.Load(), what)
	}
}

// permitCounts shows that a run has come by all outcomes.
type permitCounts struct {
	permits, exclusive, refused, held, lost, panicked, handoffs atomic.Int64
	full                                                        atomic.Int64 // all permits were held
}

type permitModel struct {
	t        *testing.T
	counts   *permitCounts
	losing   bool // leases are lost
	changing bool // n changes
	lockers  []*wllock.Locker
	back     *memlock.Backend
	calls    sync.WaitGroup

	mu      sync.Mutex // guards all below
	rand    *rand.Rand
	n       int // now
	largest int // of all callers
	inside  map[*permitCall]bool
	waiting map[*permitCall]bool
	fences  map[uint64]bool
	last    uint64 // fence of the last exclusive caller
	highest uint64 // of all fences
}

// permitCall is one call.
type permitCall struct {
	at        *wllock.Locker
	step      int // steps are so far apart that callers of one stand in line before those of the next come
	exclusive bool
	overtaken int // by later callers of its instance; guarded by permitModel.mu
	gone      bool
	held      *wllock.Held
}

func newPermitModel(t *testing.T, seed, episode uint64, all *permitCounts) *permitModel {
	m := &permitModel{t: t, counts: all, rand: rand.New(rand.NewPCG(seed, episode)), back: memlock.New(),
		inside: map[*permitCall]bool{}, waiting: map[*permitCall]bool{}, fences: map[uint64]bool{}}
	m.losing, m.changing = episode%3 == 1, episode%3 == 2
	m.n = 1 + m.rand.IntN(6)
	m.largest = m.n
	handoffs := wllock.WithMaxHandoffs(m.rand.IntN(10))
	for range 3 {
		m.lockers = append(m.lockers, lockerOn(t, m.back, handoffs, wllock.WithMaxTenure(time.Duration(1+m.rand.IntN(50))*time.Millisecond),
			wllock.WithDefaults(wllock.WithLockTimeMax(20*time.Millisecond))))
	}
	return m
}

func (m *permitModel) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

func (m *permitModel) run() {
	for id, step := 0, 0; id < permitModelEpisode; step++ {
		for range 1 + m.intn(8) {
			c := &permitCall{at: m.lockers[m.intn(3)], step: step, exclusive: m.intn(25) == 0}
			id++
			m.calls.Go(func() { m.call(c) })
		}
		synctest.Wait()
		if m.intn(4) == 0 {
			m.noWait()
		}
		if m.losing && m.intn(20) == 0 {
			m.back.Expire("test:n:k")
		}
		if m.changing && m.intn(30) == 0 {
			m.mu.Lock()
			m.n = 1 + m.rand.IntN(6)
			m.largest = max(m.largest, m.n)
			m.mu.Unlock()
		}
		if m.intn(4) > 0 {
			time.Sleep(time.Duration(m.intn(10_000)) * time.Microsecond)
		}
	}
	m.calls.Wait()
	nothingLeft(m.t, m.back, m.lockers...)
	for _, l := range m.lockers {
		require.NoError(m.t, l.Close(m.t.Context()))
		m.counts.handoffs.Add(int64(l.Stats().Total.Handoffs))
	}
}

// noWait asks for a permit that is free, or not, at a moment when nothing else happens. In between is what another instance
// does not know of: callers that wait in line for an exclusive one of their own instance.
func (m *permitModel) noWait() {
	l := m.lockers[m.intn(3)]
	m.mu.Lock()
	n, free, taken := m.n, len(m.waiting) == 0 && len(m.inside) < m.n, len(m.inside) >= m.n
	for c := range m.inside {
		free, taken = free && !c.exclusive, taken || c.exclusive
	}
	for c := range m.waiting {
		taken = taken || c.at == l
	}
	m.mu.Unlock()
	if m.losing || m.changing {
		return
	}
	err := l.Do(m.t.Context(), "n", "k", nothing, wllock.Permits(n), wllock.NoWait())
	switch {
	case free:
		require.NoError(m.t, err, "a permit is free")
	case taken:
		require.ErrorIs(m.t, err, wllock.ErrHeld)
		m.counts.full.Add(1)
	}
}

// call makes one call and checks what came of it.
func (m *permitModel) call(c *permitCall) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if m.intn(4) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+m.intn(40_000))*time.Microsecond)
		defer cancel()
	}
	var opts []wllock.CallOption
	if !c.exclusive {
		m.mu.Lock()
		opts = append(opts, wllock.Permits(m.n))
		m.mu.Unlock()
	}
	switch m.intn(8) {
	case 0:
		opts = append(opts, wllock.NoWait())
	case 1:
		opts = append(opts, wllock.WithWait(time.Duration(1+m.intn(20_000))*time.Microsecond))
	}
	m.note(m.waiting, c, true)
	panicked := true
	defer func() {
		m.note(m.waiting, c, false)
		if panicked {
			_ = recover()
			m.counts.panicked.Add(1)
		}
	}()
	err := c.at.Do(ctx, "n", "k", func(ctx context.Context) error { return m.work(ctx, c) }, opts...)
	panicked = false
	switch {
	case errors.Is(err, wllock.ErrLeaseLost):
		m.counts.lost.Add(1)
	case errors.Is(err, wllock.ErrHeld):
		m.counts.held.Add(1)
	case err != nil:
		m.counts.refused.Add(1)
	case !c.gone:
		m.t.Error("a call returned nil and its function has not run")
	}
}

func (m *permitModel) note(in map[*permitCall]bool, c *permitCall, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is {
		in[c] = true
	} else {
		delete(in, c)
	}
}

var errModelPanic = errors.New("panic of the model's")

// work is what the function does: it enters the model, stays a while, and leaves.
func (m *permitModel) work(ctx context.Context, c *permitCall) error {
	c.held, _ = wllock.HeldFrom(ctx)
	m.enters(c)
	stay := time.Duration(m.intn(5000)) * time.Microsecond
	if m.intn(50) == 0 {
		stay = 30 * time.Millisecond // overstays
	}
	if m.losing && m.intn(50) == 0 {
		stay = 2 * ttl // until its lease has expired
	}
	time.Sleep(stay)
	m.note(m.inside, c, false)
	c.gone = true
	if m.intn(30) == 0 {
		panic(errModelPanic)
	}
	return nil
}

// enters checks all that must be true when a caller gets in.
func (m *permitModel) enters(c *permitCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, c)
	m.inside[c] = true
	permits, writers := 0, 0
	for in := range m.inside {
		switch {
		case in.held.Err() != nil && errors.Is(in.held.Err(), wllock.ErrLeaseLost): // its function does not know yet
		case in.exclusive:
			writers++
		default:
			permits++
		}
	}
	m.counts.permits.Add(1)
	if c.exclusive {
		m.counts.exclusive.Add(1)
	}
	if !m.losing && (permits > m.largest || writers > 1 || writers == 1 && permits > 0) {
		m.t.Errorf("%d permits of %d and %d exclusive callers are inside", permits, m.largest, writers)
	}
	m.fenced(c)
	m.ordered(c)
}

// fenced checks rule P4. The caller holds mu.
func (m *permitModel) fenced(c *permitCall) {
	fence := c.held.Fence()
	switch {
	case m.fences[fence]:
		m.t.Errorf("fence %d is of two callers", fence)
	case m.losing: // a lease that is lost may be drawn from before its holder knows
	case fence <= m.last:
		m.t.Errorf("fence %d after %d of an exclusive caller", fence, m.last)
	case c.exclusive && fence <= m.highest:
		m.t.Errorf("fence %d of an exclusive caller after %d", fence, m.highest)
	}
	m.fences[fence], m.highest = true, max(m.highest, fence)
	if c.exclusive {
		m.last = fence
	}
}

// ordered checks that callers of an instance get in as they came, except for those that asked the backend at the same moment,
// which are as many as there are permits at most. The caller holds mu.
func (m *permitModel) ordered(c *permitCall) {
	if m.losing || m.changing {
		return
	}
	for w := range m.waiting {
		if w.at != c.at || w.step >= c.step {
			continue
		}
		if w.overtaken++; w.overtaken > m.n {
			m.t.Errorf("a caller of step %d was overtaken by %d callers, the last of step %d", w.step, w.overtaken, c.step)
		}
	}
}
