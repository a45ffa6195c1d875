package stack_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
)

// Calls for several keys each, with every option and end that there is, by three instances: none waits forever, none is
// beside another one that it excludes, each fence is above all earlier ones, and nothing is left held.
func TestSeveralKeysThroughAMixture(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, instance func(...wllock.Option) *wllock.Locker) {
		mixSeveral(t, instance, testscope.Scale(2_000, 50_000))
	})
	t.Run("zookeeper", func(t *testing.T) { mixSeveral(t, onZooKeeper(t), testscope.Scale(1_000, 20_000)) })
}

const (
	mixedKeys    = 5
	mixedCallers = 32
	// mixedTTL is longer than all the calls of a test take, so that what is left held shows.
	mixedTTL = 20 * time.Second
	// mixedEnd is when the test gives up: a circle of waits never ends.
	mixedEnd = 4 * time.Minute
)

var errOwn = errors.New("own")

// keyMix is what the locks guard, and how the calls ended.
type keyMix struct {
	lockers []*wllock.Locker
	keys    [mixedKeys]mixedKey

	left                                atomic.Int64 // calls still to make
	ran, refused, nested, order, panics atomic.Int64
	wrong                               atomic.Pointer[string]
}

// mixedKey is changed only by a caller that holds the key exclusively, so the race detector sees a caller beside that.
type mixedKey struct {
	fence   uint64
	writers int
	readers atomic.Int32
}

// mixSeveral runs so many calls of DoAll on three instances.
func mixSeveral(t *testing.T, instance func(...wllock.Option) *wllock.Locker, calls int) {
	m := keyMix{lockers: mixed(instance, mixedTTL)}
	m.left.Store(int64(calls))
	ctx, cancel := context.WithTimeout(t.Context(), mixedEnd)
	defer cancel()
	crowd(t, mixedCallers, func(i int, r *rand.Rand) {
		for m.left.Add(-1) >= 0 && m.wrong.Load() == nil {
			m.call(ctx, m.lockers[i%len(m.lockers)], r)
		}
	})
	m.check(t, ctx)
}

// check wants that nothing was wrong, and that every instance gets all keys at once.
func (m *keyMix) check(t *testing.T, ctx context.Context) {
	t.Logf("%d ran, %d with nested calls, %d of these out of order, %d panics; %d refused",
		m.ran.Load(), m.nested.Load(), m.order.Load(), m.panics.Load(), m.refused.Load())
	require.NoError(t, ctx.Err(), "callers wait for each other")
	if wrong := m.wrong.Load(); wrong != nil {
		t.Fatal(*wrong)
	}
	for _, count := range []*atomic.Int64{&m.ran, &m.refused, &m.nested, &m.order, &m.panics} {
		require.Positive(t, count.Load())
	}
	for _, l := range m.lockers {
		require.Zero(t, l.Stats().Total.Held)
		require.Zero(t, l.Stats().Total.Waiting)
		require.Zero(t, l.Stats().Total.Lost)
		for i := range m.keys {
			require.NoError(t, l.Do(ctx, "n", keyName(i), nothing, wllock.WithWait(mixedTTL/4), wllock.SyncRelease()), "left held")
		}
	}
}

func keyName(i int) string { return fmt.Sprint("k", i) }

// call makes one call, by chance impatient, canceled, or one that panics or has others nested in it.
func (m *keyMix) call(ctx context.Context, l *wllock.Locker, r *rand.Rand) {
	asked, shared := someKeys(r)
	opts, ctx, end := someOptions(ctx, r)
	defer end()
	ran := false
	fn := func(ctx context.Context) error {
		ran = true
		m.ran.Add(1)
		return m.inside(ctx, l, r, shared)
	}
	defer func() {
		if p := recover(); p != nil && p != any("boom") {
			panic(p)
		}
	}()
	err := l.DoAll(ctx, asked, fn, opts...)
	switch {
	case ran && err != nil && err != errOwn:
		m.fail("a call that ran returned %v", err)
	case !ran && err == nil:
		m.fail("a call did not run: no error")
	case !ran:
		m.refused.Add(1)
	}
}

// someKeys returns 1 to 5 keys in any order, some of them twice, and which of them are only shared.
func someKeys(r *rand.Rand) (asked []wllock.Resource, shared map[int]bool) {
	shared = map[int]bool{}
	for range 1 + r.IntN(mixedKeys) {
		key, read := r.IntN(mixedKeys), r.IntN(3) == 0
		asked = append(asked, wllock.Resource{Name: "n", Key: keyName(key), Shared: read})
		before, twice := shared[key]
		shared[key] = read && (before || !twice)
	}
	return asked, shared
}

func someOptions(ctx context.Context, r *rand.Rand) ([]wllock.CallOption, context.Context, context.CancelFunc) {
	switch r.IntN(12) {
	case 0:
		return []wllock.CallOption{wllock.NoWait()}, ctx, func() {}
	case 1, 2:
		return []wllock.CallOption{wllock.WithWait(1 + upTo(r, 5*time.Millisecond))}, ctx, func() {}
	case 3:
		return []wllock.CallOption{wllock.SyncRelease()}, ctx, func() {}
	case 4:
		return []wllock.CallOption{wllock.WithCallThreshold(2)}, ctx, func() {}
	case 5, 6:
		ctx, cancel := context.WithTimeout(ctx, 1+upTo(r, 5*time.Millisecond))
		return nil, ctx, cancel
	}
	return nil, ctx, func() {}
}

// inside is the guarded function.
func (m *keyMix) inside(ctx context.Context, l *wllock.Locker, r *rand.Rand, shared map[int]bool) error {
	for i, read := range shared {
		h, ok := wllock.HeldKey(ctx, "n", keyName(i))
		if !ok {
			m.fail("%s is not held", keyName(i))
			return nil
		}
		defer m.enter(&m.keys[i], h.Fence(), read)()
	}
	switch r.IntN(6) {
	case 0:
		time.Sleep(upTo(r, time.Millisecond))
	case 1:
		m.panics.Add(1)
		panic("boom")
	case 2:
		return errOwn
	case 3, 4:
		m.nested.Add(1)
		m.nest(ctx, l, r, shared)
	}
	return nil
}

// enter is the way into a key, and returns the way out.
func (m *keyMix) enter(k *mixedKey, fence uint64, read bool) (leave func()) {
	if fence <= k.fence {
		m.fail("fence %d after %d", fence, k.fence)
	}
	if read {
		k.readers.Add(1)
		if k.writers != 0 {
			m.fail("a reader beside a writer")
		}
		return func() { k.readers.Add(-1) }
	}
	k.fence = fence
	k.writers++
	if k.writers != 1 || k.readers.Load() != 0 {
		m.fail("a writer beside another caller")
	}
	return func() { k.writers-- }
}

// nest makes calls inside: for keys that are held, and for those with others.
func (m *keyMix) nest(ctx context.Context, l *wllock.Locker, r *rand.Rand, outer map[int]bool) {
	last := -1
	for i, read := range outer {
		last = max(last, i)
		opts := []wllock.CallOption{wllock.NoWait()}
		if read {
			opts = append(opts, wllock.Shared())
		}
		if err := l.Do(ctx, "n", keyName(i), nothing, opts...); err != nil && ctx.Err() == nil {
			m.fail("nested in its own lock: %v", err)
		}
	}
	asked, shared := someKeys(r)
	early, upgrade := false, false
	for i, read := range shared {
		was, held := outer[i]
		early = early || !held && i < last
		upgrade = upgrade || held && was && !read
	}
	err := l.DoAll(ctx, asked, func(ctx context.Context) error {
		for i := range shared {
			if _, ok := wllock.HeldKey(ctx, "n", keyName(i)); !ok {
				m.fail("%s is not held", keyName(i))
			}
		}
		return nil
	})
	switch {
	case early && !upgrade:
		m.order.Add(1)
		if !errors.Is(err, wllock.ErrLockOrder) {
			m.fail("keys out of order: %v", err)
		}
	case upgrade:
		if !errors.Is(err, wllock.ErrUpgrade) {
			m.fail("exclusive inside shared: %v", err)
		}
	case err != nil && ctx.Err() == nil:
		m.fail("nested keys in order: %v", err)
	}
}

// fail notes the first thing that was wrong.
func (m *keyMix) fail(format string, args ...any) {
	wrong := strings.TrimSpace(fmt.Sprintf(format, args...))
	m.wrong.CompareAndSwap(nil, &wrong)
}
