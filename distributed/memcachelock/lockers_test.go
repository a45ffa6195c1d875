package memcachelock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// Eight processes of sixteen callers: nobody is beside a holder, and all get the same share. In tenures they get far more of it.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	server := dbtest.Memcached(t)
	tenures := hotKey(t, server.Addr)
	turns := hotKey(t, server.Addr, wllock.WithMaxHandoffs(0))
	t.Logf("%d turns in tenures, %d over memcached", tenures, turns)
	if !race.Enabled { // which slows the turns within a process, and not the server
		require.GreaterOrEqual(t, tenures, 20*turns)
	}
}

func hotKey(t *testing.T, addr string, opts ...wllock.Option) (total int64) {
	t.Helper()
	const lockers, callers = 8, 16
	var inside int // guarded by the lock under test, as the next two
	var entered [lockers]bool
	first := 0 // how many instances have had their first turn: until then the holder may not know that somebody waits
	var turns [lockers]atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range lockers {
		l, err := wllock.New("shop", open(t, addr), append(opts, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(10*time.Second))...)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close(context.Background())) }()
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					err := l.Do(ctx, "product", "1", func(context.Context) error {
						if inside++; inside != 1 {
							t.Errorf("%d inside", inside)
						}
						if !entered[i] {
							entered[i] = true
							first++
						}
						if first == lockers {
							turns[i].Add(1)
						}
						inside--
						return nil
					})
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	var squares int64
	for i := range turns {
		n := turns[i].Load()
		total += n
		squares += n * n
	}
	jain := float64(total) * float64(total) / (lockers * float64(squares))
	t.Logf("Jain %.3f", jain)
	require.GreaterOrEqual(t, jain, 0.9)
	return total
}

// While the server is away callers are refused at once; when it is back locks are acquired again, by the same Locker.
func TestLockerOverAnOutage(t *testing.T) {
	testscope.Long(t, "takes a server away")
	t.Parallel()
	server := dbtest.Memcached(t)
	l, err := wllock.New("shop", open(t, server.Addr), wllock.WithOwnedBackend(), wllock.WithLeaseTTL(ttl))
	require.NoError(t, err)
	do := func() error {
		return l.Do(t.Context(), "product", "1", func(context.Context) error { return nil }, wllock.WithWait(time.Second))
	}
	works := func() bool { return do() == nil }
	require.Eventually(t, works, patience, time.Millisecond)
	server.Kill()
	require.Eventually(t, func() bool {
		start := time.Now()
		return errors.Is(do(), wllock.ErrUnavailable) && time.Since(start) < 10*time.Millisecond
	}, patience, time.Millisecond)
	server.Restart()
	require.Eventually(t, works, patience, time.Millisecond)
	require.NoError(t, l.Close(context.Background()))
}

// An instance that has the lock all the time learns that another one waits, though only renewals tell it.
func TestBudgetIsKept(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	holder, err := wllock.New("shop", open(t, server.Addr), wllock.WithOwnedBackend())
	require.NoError(t, err)
	other, err := wllock.New("shop", open(t, server.Addr), wllock.WithOwnedBackend())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for ctx.Err() == nil {
				_ = holder.Do(ctx, "product", "1", func(context.Context) error { return nil })
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	require.NoError(t, other.Do(t.Context(), "product", "1", func(context.Context) error { return nil }, wllock.WithWait(patience)))
	t.Logf("after %v", time.Since(start))
	stop()
	busy.Wait()
	require.NoError(t, holder.Close(context.Background()))
	require.NoError(t, other.Close(context.Background()))
}

// An item of a version with another format is refused by name, also if this one could read the rest.
func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	addr := dbtest.Memcached(t).Addr
	b, c := open(t, addr), client(t, addr)
	for _, text := range []string{`{"format":9,"owners":[{"id":"a","instance":"b","ttl":60000000000}]}`, `{"format":9,"owners":"a"}`} {
		testlocker.RefusesOtherFormats(t, testlocker.Asker{T: t, B: b, TTL: time.Minute}, func(key string) {
			require.NoError(t, c.Set(&memcache.Item{Key: itemKey(key), Value: []byte(text)}))
		})
	}
}
