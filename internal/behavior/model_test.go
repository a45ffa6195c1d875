package behavior

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
	episode int
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
	seed, counts := testseed.Seed(t), map[string]int{}
	for episode := range n {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(episode)))
			run(&model{t: t, episode: episode, back: memlock.New(), counts: counts, rand: random})
		})
		if t.Failed() {
			t.Fatalf("episode %d", episode)
		}
	}
	t.Log(counts)
	for _, what := range outcomes {
		require.Positive(t, counts[what], what)
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

// TestStaysInAnyOrder lets processes that die, are closed and are cut off from the backend call with and without WithHoldAtLeast.
func TestStaysInAnyOrder(t *testing.T) { // rules N1 to N3
	episodes(t, testscope.Scale(30, 2000), func(m *model) { (&stayModel{model: m, until: time.Now()}).run() }, "stays")
}

type stayModel struct {
	*model
	until time.Time // nobody may be inside before
}

// run has processes, one after the other in three lines, make calls for a minute.
func (m *stayModel) run() {
	end := time.Now().Add(time.Minute)
	for range 3 {
		m.calls.Go(func() {
			for time.Now().Before(end) {
				m.process(end)
			}
		})
	}
	for time.Now().Before(end) {
		time.Sleep(m.upTo(10 * time.Second))
		m.back.Partition(true)
		time.Sleep(m.upTo(2 * ttl))
		m.back.Partition(false)
	}
	m.calls.Wait()
	time.Sleep(time.Minute)
	require.NoError(m.t, lockerOn(m.t, m.back).Do(m.t.Context(), "n", "k", nothing, wllock.NoWait()), "free in the end")
}

// process makes calls until it dies, or is closed.
func (m *stayModel) process(end time.Time) {
	b := &mortal{Backend: m.back}
	l, err := wllock.New("test", b, wllock.WithLeaseTTL(ttl))
	require.NoError(m.t, err)
	ctx, exit := context.WithTimeout(m.t.Context(), min(m.upTo(20*time.Second), time.Until(end)+1))
	defer exit()
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			for ctx.Err() == nil {
				m.call(ctx, l)
				time.Sleep(m.upTo(time.Second))
			}
		})
	}
	<-ctx.Done()
	if m.intn(2) == 0 {
		b.die()
	}
	assert.NoError(m.t, l.Close(context.Background()))
	calls.Wait()
}

// call makes a call that lasts for a while, maybe with a guard inside, and notes until when nobody may be inside.
func (m *stayModel) call(ctx context.Context, l *wllock.Locker) {
	least, most := time.Duration(0), []time.Duration{0, time.Second, 10 * time.Second}[m.intn(3)]
	opts := []wllock.CallOption{wllock.WithLockTimeMax(most), wllock.WithWait(m.upTo(5 * time.Second))}
	if m.intn(3) > 0 {
		least = m.upTo(4 * time.Second)
		opts = append(opts, wllock.WithHoldAtLeast(least))
	}
	if m.intn(2) == 0 {
		opts = append(opts, wllock.NoWait())
	}
	_ = l.Do(ctx, "n", "k", func(in context.Context) error {
		m.enter(least)
		if m.intn(4) == 0 {
			_ = l.Do(in, "n", "k", nothing, opts...)
		}
		select {
		case <-in.Done():
		case <-time.After(m.upTo(2*time.Second) * time.Duration(m.intn(2))):
		}
		return nil
	}, opts...)
}

// enter checks that nobody is inside before the time has passed that the one before asked for.
func (m *stayModel) enter(least time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	assert.False(m.t, now.Before(m.until), "inside %v too early", m.until.Sub(now))
	m.until = now.Add(least)
	if least > 0 {
		m.counts["stays"]++
	}
}
