package stack_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
)

const (
	mixTTL  = 300 * time.Millisecond
	mixWait = 10 * mixTTL
	mixKeys = 12
)

// mix is what both instances share.
type mix struct {
	witness                                [mixKeys]witness
	leased, degraded, became, lost, failed atomic.Int32
}

// Two instances, many keys and goroutines, readers and writers, short and long holds, waits that are cut short, and a
// backend that comes and goes. Within an instance nobody is beside a writer, leased or degraded; those of all instances that have a
// lease exclude each other, with growing fences; a caller that may wait is served.
func TestLocalOnlyRandomMixture(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	b, m := memlock.New(), new(mix)
	lockers := make([]*wllock.Locker, 2)
	for i := range lockers {
		lockers[i] = lockerOn(t, b, wllock.WithLeaseTTL(mixTTL), wllock.WithOutage(wllock.LocalOnly), wllock.WithMaxHandoffs(8))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	crowd(t, 33, func(i int, r *rand.Rand) {
		for ctx.Err() == nil {
			if i > 0 {
				m.call(lockers[i%len(lockers)], r)
				continue
			}
			b.Partition(true)
			time.Sleep(upTo(r, 3*mixTTL))
			b.Partition(false)
			time.Sleep(mixTTL/2 + upTo(r, mixTTL))
		}
	})
	t.Logf("leased %d, degraded %d (while running %d), lost %d", m.leased.Load(), m.degraded.Load(), m.became.Load(), m.lost.Load())
	for key := range m.witness {
		require.Empty(t, m.witness[key].wrong)
	}
	require.Zero(t, m.failed.Load(), "failed")
	require.Positive(t, m.leased.Load())
	require.Positive(t, m.degraded.Load())
	for _, l := range lockers {
		require.Zero(t, l.Stats().Total.Held)
		require.Empty(t, l.Locks(10))
	}
}

func (m *mix) call(l *wllock.Locker, r *rand.Rand) {
	key, work := r.IntN(mixKeys), time.Duration(r.IntN(2))*time.Millisecond
	if r.IntN(100) == 0 {
		work = 2 * mixTTL
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
	err := l.Do(ctx, "n", strconv.Itoa(key), func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		m.witness[key].enter(h, visitor{l, shared})
		begun := !h.Degraded()
		time.Sleep(work)
		switch {
		case h.Degraded():
			m.degraded.Add(1)
			if begun {
				m.became.Add(1)
			}
		case h.Err() == nil:
			m.leased.Add(1)
		}
		m.witness[key].leave(h)
		return nil
	}, opts...)
	switch {
	case errors.Is(err, wllock.ErrLeaseLost):
		m.lost.Add(1)
	case err != nil && may:
		m.failed.Add(1)
	}
}
