package stack_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	mixTTL  = 300 * time.Millisecond
	mixWait = 10 * mixTTL
	mixKeys = 12
)

// mixSide is one instance and its callers inside: writers and readers of each key.
type mixSide struct {
	locker           *wllock.Locker
	writers, readers [mixKeys]atomic.Int32
}

// mix is what all sides share: the largest fence of a leased writer, and counters.
type mix struct {
	fences                         [mixKeys]atomic.Uint64
	leased, degraded, became, lost atomic.Int32
	beside, stale, failed          atomic.Int32
}

// Two instances, many keys and goroutines, readers and writers, short and long holds, waits that are cut short, and a
// backend that comes and goes. Within an instance nobody is beside a writer, leased or degraded; the leased writers of all
// instances come one after the other, with growing fences; a caller that may wait is served.
func TestLocalOnlyRandomMixture(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	seed := testseed.Seed(t)
	b, m := memlock.New(), new(mix)
	sides := make([]*mixSide, 2)
	for i := range sides {
		sides[i] = &mixSide{locker: lockerOn(t, b, wllock.WithLeaseTTL(mixTTL), wllock.WithOutage(wllock.LocalOnly), wllock.WithMaxHandoffs(8))}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 32 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				m.call(sides[i%len(sides)], r)
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, 99))
	for ctx.Err() == nil {
		b.Partition(true)
		time.Sleep(time.Duration(r.Int64N(int64(3 * mixTTL))))
		b.Partition(false)
		time.Sleep(mixTTL/2 + time.Duration(r.Int64N(int64(mixTTL))))
	}
	wg.Wait()
	t.Logf("leased %d, degraded %d (while running %d), lost %d", m.leased.Load(), m.degraded.Load(), m.became.Load(), m.lost.Load())
	if m.lost.Load() == 0 { // else the machine was too busy to renew in time, and a function has lost its turn
		require.Zero(t, m.beside.Load(), "beside another of its own instance")
	}
	require.Zero(t, m.stale.Load(), "leased writers beside each other, or fences that do not grow")
	require.Zero(t, m.failed.Load(), "failed")
	require.Positive(t, m.leased.Load())
	require.Positive(t, m.degraded.Load())
	for _, s := range sides {
		require.Zero(t, s.locker.Stats().Total.Held)
		require.Empty(t, s.locker.Locks(10))
	}
}

func (m *mix) call(s *mixSide, r *rand.Rand) {
	key, stay := r.IntN(mixKeys), time.Duration(r.IntN(2))*time.Millisecond
	if r.IntN(100) == 0 {
		stay = 2 * mixTTL
	}
	opts, may := []wllock.CallOption{wllock.WithWait(mixWait)}, true
	shared := r.IntN(3) == 0
	if shared {
		opts = append(opts, wllock.Shared())
	}
	ctx := context.Background()
	switch r.IntN(6) {
	case 0:
		opts, may = append(opts, wllock.NoWait()), false
	case 1:
		short, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(mixTTL))))
		defer cancel()
		ctx, may = short, false
	}
	err := s.locker.Do(ctx, "n", strconv.Itoa(key), func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		if shared {
			m.read(s, key, stay)
		} else {
			m.write(s, h, key, stay)
		}
		return nil
	}, opts...)
	switch {
	case errors.Is(err, wllock.ErrLeaseLost):
		m.lost.Add(1)
	case err != nil && may:
		m.failed.Add(1)
	}
}

func (m *mix) read(s *mixSide, key int, stay time.Duration) {
	s.readers[key].Add(1)
	if s.writers[key].Load() > 0 {
		m.beside.Add(1)
	}
	time.Sleep(stay)
	s.readers[key].Add(-1)
}

func (m *mix) write(s *mixSide, h *wllock.Held, key int, stay time.Duration) {
	if s.writers[key].Add(1) > 1 || s.readers[key].Load() > 0 {
		m.beside.Add(1)
	}
	begun, before := !h.Degraded(), m.fences[key].Load()
	time.Sleep(stay)
	switch {
	case h.Degraded():
		m.degraded.Add(1)
		if begun {
			m.became.Add(1)
		}
	case h.Err() == nil:
		m.leased.Add(1)
		if h.Fence() <= before || !m.fences[key].CompareAndSwap(before, h.Fence()) {
			m.stale.Add(1)
		}
	}
	s.writers[key].Add(-1)
}
