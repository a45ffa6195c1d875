package wllock_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// refusesReleases is a backend that says no to every release, but does it. Such a release has a log line of its own, and one
// that the backend does not answer may share the line of an outage.
type refusesReleases struct{ *memlock.Backend }

type unreleasable struct{ distributed.Lease }

func (b refusesReleases) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := b.Backend.Enter(ctx, req)
	if l != nil {
		l = unreleasable{l}
	}
	return l, p, err
}

func (l unreleasable) Unwrap() distributed.Lease { return l.Lease }

func (l unreleasable) Release(ctx context.Context) error {
	return errors.Join(distributed.ErrUnavailable, distributed.ErrRefused, l.Lease.Release(ctx))
}

// Keys may hold personal data, so they are logged at the debug level only.
func TestKeysAreLoggedAtDebugLevelOnly(t *testing.T) {
	for level, named := range map[slog.Level]bool{slog.LevelWarn: false, slog.LevelInfo: false, slog.LevelDebug: true} {
		t.Run(level.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged strings.Builder
				log := wllock.WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: level})))
				l, b := newLocker(t, log)
				lostAfter(t, l.Do(t.Context(), "n", "marker:"+strings.Repeat("x", 100), func(ctx context.Context) error {
					b.Expire("test:n:marker:" + strings.Repeat("x", 100))
					<-ctx.Done()
					return nil
				}))
				l = lockerOn(t, refusesReleases{b}, log)
				require.NoError(t, l.Do(t.Context(), "n", "marker:1", func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				}, wllock.WithLockTimeMax(time.Millisecond), wllock.SyncRelease()))
				synctest.Wait()
				require.Contains(t, logged.String(), "system=test name=n")
				for _, what := range []string{"lost while held", "held for longer", "not released"} {
					require.Contains(t, logged.String(), what)
				}
				require.Equal(t, named, strings.Contains(logged.String(), "marker"), logged.String())
				require.NotContains(t, logged.String(), strings.Repeat("x", 64), "cut")
			})
		})
	}
}

// slowLog is a log that blocks for a while: a full pipe, a hanging collector.
type slowLog struct {
	slog.Handler
	pause time.Duration
}

func (s slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (s slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(s.pause)
	return nil
}

// TestSlowLogOfALossHarmsNobody: neither the next caller in line nor the leases that are renewed with the lost one.
func TestSlowLogOfALossHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, err := wllock.New("test", b, wllock.WithLeaseTTL(ttl), wllock.WithLogger(slog.New(slowLog{slog.DiscardHandler, 5 * ttl})))
		require.NoError(t, err)
		const n = 6
		var locks []*wllock.Lock
		for i := range n {
			k, err := l.Acquire(t.Context(), "n", string(rune('a'+i)))
			require.NoError(t, err)
			locks = append(locks, k)
		}
		next := make(chan time.Duration, 1)
		begin := time.Now()
		go func() {
			_ = l.Do(context.Background(), "n", "a", nothing)
			next <- time.Since(begin)
		}()
		synctest.Wait()
		for i := 0; i < n; i += 2 { // several, because leases renewed before a lost one are not affected
			b.Expire("test:n:" + string(rune('a'+i)))
		}
		time.Sleep(3 * ttl)
		lost := 0
		for i := 1; i < n; i += 2 {
			if locks[i].Err() != nil {
				lost++
			}
		}
		for _, k := range locks {
			_ = k.Release(t.Context())
		}
		waited := <-next
		_ = l.Close(t.Context())
		_ = b.Close()
		time.Sleep(n * 5 * ttl) // until all is logged
		if lost > 0 {
			t.Errorf("%d leases of others were lost", lost)
		}
		require.LessOrEqual(t, waited, 2*ttl)
	})
}

// badLog is a logger whose lines do what they like.
type badLog struct {
	slog.Handler
	line func(slog.Record)
}

func (b badLog) Handle(_ context.Context, r slog.Record) error {
	b.line(r)
	return nil
}

func newBadLog(line func(slog.Record)) wllock.Option {
	return wllock.WithLogger(slog.New(badLog{slog.NewTextHandler(io.Discard, nil), line}))
}

// losses makes a Locker lose n locks at the same time.
func losses(t *testing.T, l *wllock.Locker, b *memlock.Backend, n int) {
	t.Helper()
	before := l.Stats().Total.Lost
	for i := range n {
		_, err := l.Acquire(t.Context(), "n", strconv.Itoa(i))
		require.NoError(t, err)
	}
	for i := range n { // not by an outage, whose losses share a line
		b.Expire("test:n:" + strconv.Itoa(i))
	}
	time.Sleep(2 * ttl)
	require.EqualValues(t, n, l.Stats().Total.Lost-before)
}

// TestLossesWithALogThatStandsStillTakeFewGoroutines: they are reported one after the other, or left out and counted.
func TestLossesWithALogThatStandsStillTakeFewGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		release := sync.OnceFunc(func() { close(until) })
		defer release()
		var lines int
		l, b := newLocker(t, newBadLog(func(slog.Record) { <-until; lines++ }))
		before := runtime.NumGoroutine()
		const n = 10_000
		losses(t, l, b, n)
		synctest.Wait() // goroutines whose timers fired at the end of losses may still run
		require.LessOrEqual(t, runtime.NumGoroutine(), before+100, "the runtime counts up to 33 too many while it puts ended ones aside")
		release()
		synctest.Wait()
		require.NotZero(t, l.Stats().ReportsDropped)
		require.InDelta(t, n, uint64(lines)+l.Stats().ReportsDropped, 10, "there are lines on the outage, too")
	})
}

func TestPanicOfALoggerIsCountedAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []slog.Record
		l, b := newLocker(t, newBadLog(func(r slog.Record) {
			if strings.Contains(r.Message, "lost") {
				panic("broken log")
			}
			lines = append(lines, r)
		}))
		losses(t, l, b, 3)
		synctest.Wait()
		require.EqualValues(t, 3, l.Stats().ReportPanics)
		var panics []string
		for _, r := range lines {
			if strings.Contains(r.Message, "panicked") {
				r.Attrs(func(a slog.Attr) bool { panics = append(panics, a.String()); return true })
			}
		}
		require.Equal(t, []string{"system=test", "panic=broken log", "instance=" + l.Instance()}, panics)
	})
}

// TestCloseDoesNotWaitForALogThatStandsStill: not beyond its context, and never for longer than 1 s.
func TestCloseDoesNotWaitForALogThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		release := sync.OnceFunc(func() { close(until) })
		defer release()
		l, b := newLocker(t, newBadLog(func(slog.Record) { <-until }))
		losses(t, l, b, 2)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		defer cancel()
		begin := time.Now()
		require.ErrorContains(t, l.Close(ctx), "log lines")
		require.LessOrEqual(t, time.Since(begin), ttl/10+10*time.Millisecond)
		begin = time.Now()
		require.ErrorContains(t, l.Close(context.Background()), "log lines")
		require.Equal(t, time.Second, time.Since(begin))
		release()
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestSlowLogOfAnOutageDelaysNoCaller: the breaker logs, too, and so does the policy that serves without leases.
func TestSlowLogOfAnOutageDelaysNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, outage := range []wllock.Outage{wllock.FailClosed, wllock.LocalOnly} {
			var lines atomic.Int32
			l, b := newLocker(t, wllock.WithOutage(outage), newBadLog(func(slog.Record) { lines.Add(1); time.Sleep(time.Minute) }))
			b.Partition(true)
			for range 20 {
				begin := time.Now()
				_ = l.Do(t.Context(), "n", "k", nothing, wllock.WithWait(ttl/10))
				require.LessOrEqual(t, time.Since(begin), ttl/10)
			}
			b.Partition(false)
			time.Sleep(time.Hour)
			require.NotZero(t, lines.Load())
		}
	})
}

// seeing is a handler that keeps the contexts of its lines.
type seeing struct {
	slog.Handler
	lines chan context.Context
}

func (s seeing) Handle(ctx context.Context, _ slog.Record) error {
	s.lines <- ctx
	return nil
}

// The other locks of the call may not have been acquired yet, or have been released.
func TestLogLinesOfADoAllHaveTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan context.Context, 3)
		l, b := newLocker(t, wllock.WithLogger(slog.New(seeing{slog.NewTextHandler(io.Discard, nil), lines})))
		ctx := context.WithValue(t.Context(), valueKey{}, "callers")
		lostAfter(t, l.DoAll(ctx, keys("a", "b", "c"), func(ctx context.Context) error {
			b.Expire("test:n:b")
			<-ctx.Done()
			return nil
		}))
		seen := <-lines
		require.Equal(t, "callers", seen.Value(valueKey{}))
		_, held := wllock.HeldFrom(seen)
		require.False(t, held)
		require.NoError(t, seen.Err(), "as for Do")
	})
}
