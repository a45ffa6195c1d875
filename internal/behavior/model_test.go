package behavior

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// model is callers of the key n:k at random, of several Lockers over one backend: with waits, cancellations, panics, functions that
// overstay, and in some episodes leases that are lost. What it knows of them says what may happen.
type model struct {
	t       *testing.T
	seed    uint64
	back    *memlock.Backend
	lockers []*wllock.Locker
	losing  bool // leases are lost in this episode
	counts  map[string]int
	calls   sync.WaitGroup

	mu   sync.Mutex // guards rand, counts, and all of the models that embed it
	rand *rand.Rand
}

// modelCalls is how many calls one set of Lockers gets.
const modelCalls = 500

// episodes runs a model so many times, and requires that it has come by all these outcomes.
func episodes(t *testing.T, n int, run func(*model), outcomes ...string) {
	counts := map[string]int{}
	all := testseed.Each(t, n, func(seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			run(&model{t: t, seed: seed, back: memlock.New(), counts: counts, rand: rand.New(rand.NewPCG(seed, 0))})
		})
	})
	t.Log(counts)
	for _, what := range outcomes {
		require.True(t, !all || counts[what] > 0, what)
	}
}

func (m *model) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

// upTo returns a time from 1 ns to d.
func (m *model) upTo(d time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 1 + time.Duration(m.rand.Int64N(int64(d)))
}

func (m *model) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
}

// context is that of a caller, of which one in so many waits up to d only.
func (m *model) context(one int, d time.Duration) (context.Context, context.CancelFunc) {
	if m.intn(one) == 0 {
		return context.WithTimeout(context.Background(), m.upTo(d))
	}
	return context.WithCancel(context.Background())
}

// run lets callers come in steps, up to so many in each. Steps are so far apart that the callers of one stand in line before those of
// the next come. next prepares a call, after comes after each step.
func (m *model) run(most int, next func(step int) (call func()), after func()) {
	for calls, step := 0, 0; calls < modelCalls; step++ {
		for range 1 + m.intn(most) {
			m.calls.Go(next(step))
			calls++
		}
		synctest.Wait()
		after()
		if m.losing && m.intn(20) == 0 {
			m.back.Expire("test:n:k")
		}
		if m.intn(4) > 0 {
			time.Sleep(m.upTo(10 * time.Millisecond))
		}
	}
	m.calls.Wait()
	time.Sleep(time.Minute) // functions whose callers have left may still run
	nothingLeft(m.t, m.back, m.lockers...)
	for _, l := range m.lockers {
		require.NoError(m.t, l.Close(m.t.Context()))
		total := l.Stats().Total
		for what, n := range map[string]uint64{"handed on": total.Handoffs, "rode": total.Batched, "lost": total.Lost} {
			m.counts[what] += int(n)
		}
	}
}

// Permits, exclusive callers among them, with NoWait, and an n that changes. Episodes come in three kinds: calm ones check everything,
// in those with a changing n the largest bounds how many are inside, and when leases are lost nobody is counted.
func TestModelOfPermits(t *testing.T) { // rules P1, P4 and L1
	episodes(t, testscope.Scale(30, 10_000), func(m *model) { newPermitModel(m).run() },
		"in", "exclusive", "full", "refused", "held", "lost", "panicked", "handed on")
}

type permitModel struct {
	*model
	changing bool // n changes

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
	step      int
	exclusive bool
	overtaken int // by later callers of its instance; guarded by model.mu
	gone      bool
	held      *wllock.Held
}

func newPermitModel(of *model) *permitModel {
	m := &permitModel{model: of, inside: map[*permitCall]bool{}, waiting: map[*permitCall]bool{}, fences: map[uint64]bool{}}
	m.losing, m.changing = m.seed%3 == 1, m.seed%3 == 2
	m.n = 1 + m.intn(6)
	m.largest = m.n
	handoffs := wllock.WithMaxHandoffs(m.intn(10))
	for range 3 {
		m.lockers = append(m.lockers, lockerOn(m.t, m.back, handoffs, wllock.WithMaxTenure(m.upTo(50*time.Millisecond)),
			wllock.WithDefaults(wllock.WithLockTimeMax(20*time.Millisecond))))
	}
	return m
}

func (m *permitModel) run() {
	m.model.run(8, func(step int) func() {
		c := &permitCall{at: m.lockers[m.intn(3)], step: step, exclusive: m.intn(25) == 0}
		return func() { m.call(c) }
	}, func() {
		if m.intn(4) == 0 && !m.losing && !m.changing {
			m.noWait()
		}
		if m.changing && m.intn(30) == 0 {
			m.mu.Lock()
			m.n = 1 + m.rand.IntN(6)
			m.largest = max(m.largest, m.n)
			m.mu.Unlock()
		}
	})
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
	err := l.Do(m.t.Context(), "n", "k", nothing, wllock.Permits(n), wllock.NoWait())
	switch {
	case free:
		require.NoError(m.t, err, "a permit is free")
	case taken:
		require.ErrorIs(m.t, err, wllock.ErrHeld)
		m.count("full")
	}
}

// call makes one call and checks what came of it.
func (m *permitModel) call(c *permitCall) {
	ctx, cancel := m.context(4, 40*time.Millisecond)
	defer cancel()
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
		opts = append(opts, wllock.WithWait(m.upTo(20*time.Millisecond)))
	}
	m.note(m.waiting, c, true)
	panicked := true
	defer func() {
		m.note(m.waiting, c, false)
		if panicked {
			_ = recover()
			m.count("panicked")
		}
	}()
	err := c.at.Do(ctx, "n", "k", func(ctx context.Context) error { return m.work(ctx, c) }, opts...)
	panicked = false
	switch {
	case errors.Is(err, wllock.ErrLeaseLost): // counted by the Locker
	case errors.Is(err, wllock.ErrHeld):
		m.count("held")
	case err != nil:
		m.count("refused")
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

// work is what the function does: it enters the model, stays a while, and leaves.
func (m *permitModel) work(ctx context.Context, c *permitCall) error {
	c.held, _ = wllock.HeldFrom(ctx)
	m.enters(c)
	stay := m.upTo(5 * time.Millisecond)
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
		panic("of the model's")
	}
	return nil
}

// enters checks all that must be true when a caller gets in.
func (m *permitModel) enters(c *permitCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, c)
	m.inside[c] = true
	m.counts["in"]++
	if c.exclusive {
		m.counts["exclusive"]++
	}
	writers := 0
	for in := range m.inside {
		if in.exclusive {
			writers++
		}
	}
	if permits := len(m.inside) - writers; !m.losing && (permits > m.largest || writers > 1 || writers == 1 && permits > 0) {
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
