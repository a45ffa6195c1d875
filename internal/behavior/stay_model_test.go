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

// TestStaysInAnyOrder lets processes that die, are closed and are cut off from the backend call with and without WithHoldAtLeast, at random.
// Nobody may be inside before the time has passed that the one before asked for.
func TestStaysInAnyOrder(t *testing.T) { // rules N1 to N3
	seed, rounds := testseed.Seed(t), testscope.Scale[uint64](30, 2000)
	stays := 0
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			m := &stayModel{t: t, backend: memlock.New(), random: rand.New(rand.NewPCG(seed, round)), until: time.Now()}
			m.run()
			stays += m.stays
		})
	}
	require.Greater(t, stays, int(rounds))
}

type stayModel struct {
	t       *testing.T
	backend *memlock.Backend

	mu     sync.Mutex // guards all below
	random *rand.Rand
	until  time.Time // nobody may be inside before
	stays  int
}

func (m *stayModel) below(n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.Int64N(n)
}

func (m *stayModel) upTo(d time.Duration) time.Duration { return time.Duration(m.below(int64(d) + 1)) }

// run has processes, one after the other in three lines, make calls for a minute.
func (m *stayModel) run() {
	end := time.Now().Add(time.Minute)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for time.Now().Before(end) {
				m.process(end)
			}
		})
	}
	for time.Now().Before(end) {
		time.Sleep(m.upTo(10 * time.Second))
		m.backend.Partition(true)
		time.Sleep(m.upTo(2 * ttl))
		m.backend.Partition(false)
	}
	all.Wait()
	time.Sleep(time.Minute)
	require.NoError(m.t, lockerOn(m.t, m.backend).Do(m.t.Context(), "n", "k", nothing, wllock.NoWait()), "free in the end")
}

// process makes calls until it dies, or is closed.
func (m *stayModel) process(end time.Time) {
	b := &mortal{Backend: m.backend}
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
	if m.below(2) == 0 {
		b.die()
	}
	assert.NoError(m.t, l.Close(context.Background()))
	calls.Wait()
}

// call makes a call that lasts for a while, maybe with a guard inside, and notes until when nobody may be inside.
func (m *stayModel) call(ctx context.Context, l *wllock.Locker) {
	least, most := time.Duration(0), []time.Duration{0, time.Second, 10 * time.Second}[m.below(3)]
	opts := []wllock.CallOption{wllock.WithLockTimeMax(most), wllock.WithWait(m.upTo(5*time.Second) + 1)}
	if m.below(3) > 0 {
		least = m.upTo(4 * time.Second)
		opts = append(opts, wllock.WithHoldAtLeast(least))
	}
	if m.below(2) == 0 {
		opts = append(opts, wllock.NoWait())
	}
	_ = l.Do(ctx, "n", "k", func(in context.Context) error {
		m.enter(least)
		if m.below(4) == 0 {
			_ = l.Do(in, "n", "k", nothing, opts...)
		}
		select {
		case <-in.Done():
		case <-time.After(m.upTo(2*time.Second) * time.Duration(m.below(2))):
		}
		return nil
	}, opts...)
}

// enter checks the one that was inside before.
func (m *stayModel) enter(least time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	assert.False(m.t, now.Before(m.until), "inside %v too early", m.until.Sub(now))
	m.until = now.Add(least)
	if least > 0 {
		m.stays++
	}
}
