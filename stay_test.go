package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

const least = 30 * time.Second

// freeAfter returns when another instance gets the lock test:n:k.
func freeAfter(t *testing.T, l *wllock.Locker) time.Duration {
	begin := time.Now()
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
	return time.Since(begin)
}

func TestLockStaysTakenForAtLeastThatLong(t *testing.T) { // rule N2
	own := errors.New("own")
	for name, fn := range map[string]wllock.Func{
		"success": nothing,
		"error":   func(context.Context) error { return own },
		"panic":   func(context.Context) error { panic(own) },
	} {
		for who, other := range map[string]func(*testing.T, *wllock.Locker, *memlock.Backend) *wllock.Locker{
			"the same Locker": func(_ *testing.T, l *wllock.Locker, _ *memlock.Backend) *wllock.Locker { return l },
			"another Locker":  func(t *testing.T, _ *wllock.Locker, b *memlock.Backend) *wllock.Locker { return lockerOn(t, b) },
		} {
			t.Run(name+", "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, b := newLocker(t)
					o := other(t, l, b)
					begin := time.Now()
					func() {
						defer func() { _ = recover() }()
						_ = l.Do(t.Context(), "n", "k", fn, wllock.WithHoldAtLeast(least))
					}()
					require.Zero(t, time.Since(begin), "Do returns when the function has")
					require.ErrorIs(t, o.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
					require.ErrorIs(t, o.Do(t.Context(), "n", "k", never(t), wllock.WithWait(least-time.Second)), wllock.ErrWaitTimeout)
					freeAfter(t, o)
					require.Equal(t, least, time.Since(begin))
				})
			})
		}
	}
}

func TestFunctionThatTakesLongerIsNotDelayed(t *testing.T) { // rule N2
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", func(context.Context) error { time.Sleep(3 * least); return nil },
			wllock.WithHoldAtLeast(least), wllock.WithLockTimeMax(0)))
		freeAfter(t, lockerOn(t, b))
		require.Equal(t, 3*least, time.Since(begin))
	})
}

func TestAcquiredLockStaysTaken(t *testing.T) { // rule N2
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		k, err := l.Acquire(t.Context(), "n", "k", wllock.WithHoldAtLeast(least))
		require.NoError(t, err)
		time.Sleep(least / 10)
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, k.Release(t.Context()), "again")
		require.Equal(t, 9*least/10, freeAfter(t, l), "counted from Acquire")
	})
}

func TestLockStaysTakenWhenItsProcessDies(t *testing.T) { // rule N2
	for name, test := range map[string]struct {
		runs    time.Duration // until it dies
		max     time.Duration
		latest  time.Duration
		returns bool
	}{
		"at once":                      {runs: 0, max: least, latest: least + 2*time.Second},
		"after the function":           {runs: least / 10, max: 2 * least, latest: least + 2*time.Second, returns: true},
		"in a function that may last":  {runs: least / 2, max: 0, latest: 3 * least},
		"in a function that may not":   {runs: least / 2, max: least, latest: least + 2*time.Second},
		"after a function that might":  {runs: least * 9 / 10, max: 0, latest: 4 * least, returns: true},
		"after one that took its time": {runs: least * 9 / 10, max: least, latest: least + 2*time.Second, returns: true},
	} {
		for _, keys := range [][]wllock.Resource{{{Name: "n", Key: "k"}}, {{Name: "n", Key: "k"}, {Name: "n", Key: "l"}}} {
			t.Run(fmt.Sprint(name, ", keys: ", len(keys)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memlock.New()
					m := &mortal{Backend: b}
					l, other := lockerOn(t, m), lockerOn(t, b)
					do := func(fn wllock.Func, opts ...wllock.CallOption) error { return l.Do(t.Context(), "n", "k", fn, opts...) }
					if len(keys) > 1 {
						do = func(fn wllock.Func, opts ...wllock.CallOption) error { return l.DoAll(t.Context(), keys, fn, opts...) }
					}
					begin := time.Now()
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() {
						defer close(done)
						_ = do(func(context.Context) error {
							if test.returns {
								time.Sleep(test.runs)
							} else {
								<-ctx.Done()
							}
							return nil
						}, wllock.WithHoldAtLeast(least), wllock.WithLockTimeMax(test.max))
					}()
					time.Sleep(test.runs + time.Millisecond)
					m.die()
					freeAfter(t, other)
					took := time.Since(begin)
					require.GreaterOrEqual(t, took, least)
					require.LessOrEqual(t, took, test.latest)
					cancel()
					<-done
				})
			})
		}
	}
}

// mortal is a backend as a process sees it that can die: then nothing it holds is renewed or released.
type mortal struct {
	distributed.Backend
	mu     sync.Mutex
	dead   bool
	leases []*mortalLease
}

func (m *mortal) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	if dead { // it asks for nothing any more
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	l, p, err := m.Backend.Enter(ctx, req)
	switch {
	case l != nil:
		return m.wrap(l), nil, err
	case p != nil:
		return nil, wrap.Place(p, m.wrap), err
	}
	return nil, nil, err
}

func (m *mortal) wrap(l distributed.Lease) distributed.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead { // a late grant
		l.Abandon()
	}
	m.leases = append(m.leases, &mortalLease{l, m})
	return m.leases[len(m.leases)-1]
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, l := range m.leases {
		l.Abandon()
	}
}

type mortalLease struct {
	distributed.Lease
	m *mortal
}

func (l *mortalLease) Unwrap() distributed.Lease { return l.Lease }
func (l *mortalLease) Release(ctx context.Context) error {
	l.m.mu.Lock()
	dead := l.m.dead
	l.m.mu.Unlock()
	if dead {
		return nil
	}
	return l.Lease.Release(ctx)
}
