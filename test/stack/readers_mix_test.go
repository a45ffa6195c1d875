package stack_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
)

const (
	longestRead = 1200 * time.Millisecond
	// readMixTTL makes renewals seldom: what only they repair shows.
	readMixTTL = 6 * time.Second
	// readMixSlack is what a busy machine may add to a wait.
	readMixSlack = 400 * time.Millisecond
)

// span is the time from when a caller asked to when it was let in, or had left.
type span struct{ from, to time.Time }

// readMix is a course of readers and writers on a key.
type readMix struct {
	data    int // only a writer changes it, so the race detector sees a caller beside a writer
	readers atomic.Int32
	wrong   atomic.Int64

	mu           sync.Mutex
	waits        []span // guarded by mu; of readers
	writers      []span // guarded by mu; the whole stay of each, also of those that gave up
	longestWrite time.Duration
	reads        int
}

// Readers and a writer of three instances: a reader waits only while a writer is inside or before it, and a writer for two
// rounds of readers at most.
func TestReadersWaitForWritersOnly(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, instance func(...wllock.Option) *wllock.Locker) {
		m := new(readMix)
		var lockers []*wllock.Locker
		for range 3 {
			lockers = append(lockers, instance(wllock.WithLeaseTTL(readMixTTL)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), testscope.Scale(4*time.Second, time.Minute))
		defer cancel()
		stalled := stalls(t)
		crowd(t, 10, func(i int, r *rand.Rand) {
			for ctx.Err() == nil {
				if i == 0 {
					m.write(lockers[r.IntN(len(lockers))], r)
				} else {
					m.read(lockers[i%len(lockers)], r)
				}
			}
		})
		m.check(t, readMixSlack+4*quantile(stalled(), 1))
	})
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func (m *readMix) read(l *wllock.Locker, r *rand.Rand) {
	time.Sleep(upTo(r, 300*time.Millisecond))
	stay := upTo(r, 100*time.Millisecond)
	if r.IntN(6) == 0 {
		stay = longestRead
	}
	asked := time.Now()
	var in time.Time
	err := l.Do(context.Background(), "n", "k", func(ctx context.Context) error {
		in = time.Now()
		m.readers.Add(1)
		before := m.data
		time.Sleep(stay)
		if m.data != before {
			m.wrong.Add(1)
		}
		m.readers.Add(-1)
		h, _ := wllock.HeldFrom(ctx)
		return h.Err()
	}, wllock.Shared())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	m.waits = append(m.waits, span{asked, in})
	if err != nil {
		m.wrong.Add(1)
	}
}

func (m *readMix) write(l *wllock.Locker, r *rand.Rand) {
	time.Sleep(upTo(r, 500*time.Millisecond))
	opts := []wllock.CallOption{}
	if r.IntN(3) == 0 {
		opts = append(opts, wllock.WithWait(1+upTo(r, 300*time.Millisecond)))
	}
	asked := time.Now()
	var in time.Time
	err := l.Do(context.Background(), "n", "k", func(context.Context) error {
		in = time.Now()
		m.data++
		if m.readers.Load() > 0 {
			m.wrong.Add(1)
		}
		time.Sleep(upTo(r, 20*time.Millisecond))
		return nil
	}, opts...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writers = append(m.writers, span{asked, time.Now()})
	if err == nil {
		m.longestWrite = max(m.longestWrite, in.Sub(asked))
	} else if !errors.Is(err, wllock.ErrWaitTimeout) {
		m.wrong.Add(1)
	}
}

// alone is the longest time in the span in which no writer was there.
func (m *readMix) alone(s span) (longest time.Duration) {
	from := s.from
	for _, w := range m.writers {
		if w.to.Before(from) {
			continue
		}
		if w.from.After(s.to) {
			break
		}
		longest = max(longest, w.from.Sub(from))
		from = w.to
	}
	return max(longest, s.to.Sub(from))
}

func (m *readMix) check(t *testing.T, slack time.Duration) {
	slices.SortFunc(m.writers, func(a, b span) int { return a.from.Compare(b.from) })
	var worst time.Duration
	for _, s := range m.waits {
		worst = max(worst, m.alone(s))
	}
	t.Logf("%d reads, %d writers; a reader waited without a writer for up to %v, a writer for up to %v", m.reads, len(m.writers), worst, m.longestWrite)
	require.Zero(t, m.wrong.Load())
	require.Less(t, worst, slack)
	require.Less(t, m.longestWrite, 2*longestRead+wllock.DefaultMaxTenure+slack)
}
