package behavior

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Keys may hold personal data, so they are logged at the debug level only.
func TestKeysAreLoggedAtDebugLevelOnly(t *testing.T) {
	for level, named := range map[slog.Level]bool{slog.LevelWarn: false, slog.LevelInfo: false, slog.LevelDebug: true} {
		bubble(t, level.String(), func(t *testing.T) {
			var logged strings.Builder
			log := wllock.WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: level})))
			l, b := newLocker(t, log)
			long := "marker:" + strings.Repeat("x", 100)
			lostAfter(t, l.Do(t.Context(), "n", long, losing(b, long)))
			l = lockerOn(t, refusesReleases(b, ""), log)
			overstays := func(ctx context.Context) { <-ctx.Done() }
			inside(t, l, keys("marker:1"), overstays, wllock.WithLockTimeMax(time.Millisecond), wllock.SyncRelease())
			synctest.Wait()
			require.Contains(t, logged.String(), "system=test name=n")
			for _, what := range []string{"lost while held", "held for longer", "not released"} {
				require.Contains(t, logged.String(), what)
			}
			require.Equal(t, named, strings.Contains(logged.String(), "marker"), logged.String())
			require.NotContains(t, logged.String(), strings.Repeat("x", 64), "cut")
		})
	}
}

// logging returns a logger whose lines are what line does with them.
func logging(line func(context.Context, slog.Record)) wllock.Option {
	return wllock.WithLogger(slog.New(lineLog{slog.NewTextHandler(io.Discard, nil), line}))
}

type lineLog struct {
	slog.Handler
	line func(context.Context, slog.Record)
}

func (l lineLog) Handle(ctx context.Context, r slog.Record) error {
	l.line(ctx, r)
	return nil
}

// standing is a log that stands still until release is called.
func standing() (log wllock.Option, lines *atomic.Int64, release func()) {
	until := make(chan struct{})
	lines = new(atomic.Int64)
	return logging(func(context.Context, slog.Record) { <-until; lines.Add(1) }), lines, sync.OnceFunc(func() { close(until) })
}

// losses makes a Locker lose n locks at the same time.
func losses(t *testing.T, l *wllock.Locker, b *memlock.Backend, n int) {
	t.Helper()
	before := l.Stats().Total.Lost
	for i := range n {
		acquire(t, l, strconv.Itoa(i))
	}
	for i := range n { // not by an outage, whose losses share a line
		b.Expire("test:n:" + strconv.Itoa(i))
	}
	time.Sleep(2 * ttl)
	require.EqualValues(t, n, l.Stats().Total.Lost-before)
}

func TestLogs(t *testing.T) {
	// Losses are reported one after the other, or left out and counted. Neither the next caller in line waits for that, nor do the
	// renewals of other leases.
	bubble(t, "losses with one that stands still harm nobody", func(t *testing.T) {
		log, lines, release := standing()
		defer release()
		l, b := newLocker(t, log)
		kept := []*wllock.Lock{}
		for _, key := range []string{"a", "b", "c"} {
			kept = append(kept, acquire(t, l, key))
		}
		before := runtime.NumGoroutine()
		const n = 10_000
		losses(t, l, b, n)
		synctest.Wait() // goroutines whose timers fired at the end of losses may still run
		require.LessOrEqual(t, runtime.NumGoroutine(), before+100, "the runtime counts up to 33 too many while it puts ended ones aside")
		require.LessOrEqual(t, elapsed(func() { require.NoError(t, l.Do(t.Context(), "n", "0", nothing)) }), 10*time.Millisecond)
		time.Sleep(3 * ttl)
		for _, k := range kept {
			require.NoError(t, k.Release(t.Context()))
		}
		release()
		synctest.Wait()
		require.NotZero(t, l.Stats().ReportsDropped)
		require.InDelta(t, n, uint64(lines.Load())+l.Stats().ReportsDropped, 10, "there are lines on the outage, too")
	})

	bubble(t, "a panic is counted and logged once", func(t *testing.T) {
		var lines []slog.Record
		l, b := newLocker(t, logging(func(_ context.Context, r slog.Record) {
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

	// Not beyond its context, and never for longer than 1 s.
	bubble(t, "Close does not wait for one that stands still", func(t *testing.T) {
		log, _, release := standing()
		defer release()
		l, b := newLocker(t, log)
		losses(t, l, b, 2)
		refuses := func(ctx context.Context) time.Duration {
			return elapsed(func() { require.ErrorContains(t, l.Close(ctx), "log lines") })
		}
		require.LessOrEqual(t, refuses(within(t, ttl/10)), ttl/10+10*time.Millisecond)
		require.Equal(t, time.Second, refuses(context.Background()))
		release()
		require.NoError(t, l.Close(t.Context()))
	})

	// The breaker logs, too, and so does the policy that serves without leases.
	bubble(t, "a slow one delays no caller in an outage", func(t *testing.T) {
		for _, outage := range []wllock.Outage{wllock.FailClosed, wllock.LocalOnly} {
			var lines atomic.Int32
			l, b := newLocker(t, wllock.WithOutage(outage), logging(func(context.Context, slog.Record) { lines.Add(1); time.Sleep(time.Minute) }))
			b.Partition(true)
			for range 20 {
				require.LessOrEqual(t, elapsed(func() { _ = l.Do(t.Context(), "n", "k", nothing, wllock.WithWait(ttl/10)) }), ttl/10)
			}
			b.Partition(false)
			time.Sleep(time.Hour)
			require.NotZero(t, lines.Load())
		}
	})

	// The other locks of the call may not have been acquired yet, or have been released.
	bubble(t, "lines of a DoAll have the caller's context", func(t *testing.T) {
		lines := make(chan context.Context, 3)
		l, b := newLocker(t, logging(func(ctx context.Context, _ slog.Record) { lines <- ctx }))
		ctx := context.WithValue(t.Context(), valueKey{}, "callers")
		lostAfter(t, l.DoAll(ctx, keys("a", "b", "c"), losing(b, "b")))
		seen := <-lines
		require.Equal(t, "callers", seen.Value(valueKey{}))
		_, held := wllock.HeldFrom(seen)
		require.False(t, held)
		require.NoError(t, seen.Err(), "as for Do")
	})
}

// TestWhatIsPrintedShowsNoKey: applications log what they are given, and mocks print their arguments.
func TestWhatIsPrintedShowsNoKey(t *testing.T) {
	l, _ := newLocker(t)
	print := func(what any) string {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q", "%x"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", what)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("", "what", what)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("", "what", what)
		_ = json.NewEncoder(&out).Encode(what)
		_, _ = fmt.Fprintf(&out, "%v (%[2]T=%[2]v)", []any{what}, what) // the latter as testify's mocks do
		return out.String()
	}
	var nested string
	require.NoError(t, l.Do(context.Background(), "outer", "secret-1", func(outer context.Context) error {
		return l.Do(outer, "inner", "secret-2", func(inner context.Context) error {
			held, _ := wllock.HeldFrom(inner)
			child, cancel := context.WithCancel(context.WithValue(inner, valueKey{}, 1))
			defer cancel()
			require.NotContains(t, fmt.Sprintf("%v %+v %s", child, child, child), "secret")
			require.Equal(t, "context.Background.wllock(outer).wllock(inner)", fmt.Sprint(inner))
			lock, err := l.Acquire(inner, "outer", "secret-1")
			require.NoError(t, err)
			defer func() { require.NoError(t, lock.Release(inner)) }()
			nested = fmt.Sprint(lock.Context())
			for _, what := range []any{outer, inner, held, *held, lock, lock.Context(), l} {
				require.NotContains(t, print(what), "secret")
			}
			require.Equal(t, "wllock.Held(test:inner)", fmt.Sprint(held))
			require.Equal(t, "wllock.Held(test:outer)", fmt.Sprint(lock))
			return nil
		})
	}))
	require.Equal(t, "context.Background.wllock(outer).wllock(inner).wllock(outer)", nested)
	inside(t, l, keys("secret1", "secret2"), func(ctx context.Context) {
		require.Contains(t, print(ctx), ".wllock(n, ...)")
		require.NotContains(t, print(ctx), "secret")
	})
	require.Equal(t, "wllock.Locker(test)", fmt.Sprint(l))
}

// TestPrintingIsNoRace is for the race detector: others use the hold and the Locker meanwhile.
func TestPrintingIsNoRace(t *testing.T) {
	l, _ := newLocker(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				_ = l.Do(context.Background(), "n", strconv.Itoa(i), func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					_ = fmt.Sprintf("%v %+v %#v %v %#v %v", ctx, ctx, ctx, held, held, l)
					return nil
				})
				_ = l.SetThreshold("", i)
			}
		})
	}
	wg.Wait()
}

const keySecret = "sixteen bytes or more"

func TestHashKeys(t *testing.T) {
	secret := []byte(keySecret)
	hash := wllock.HashKeys(secret)
	clear(secret)
	require.Equal(t, "#645fc47328abdeed", hash("4711"), "the same in all processes, and for ever")
	require.NotEqual(t, hash("4711"), wllock.HashKeys([]byte(keySecret+"!"))("4711"))
	for _, short := range [][]byte{nil, {}, []byte("fifteen bytes..")} {
		_, err := wllock.New("test", memlock.New(), wllock.WithKeyRedaction(wllock.HashKeys(short)))
		require.EqualError(t, err, "wllock: WithKeyRedaction(nil): want a function: HashKeys makes one of a secret of 16 bytes or more")
	}
}

// Programs see the key where they work with it.
func TestKeysOfProgramsAreNotRedacted(t *testing.T) {
	l, _ := newLocker(t, wllock.WithKeyRedaction(strings.ToUpper))
	inside(t, l, keys("k"), func(ctx context.Context) {
		held, ok := wllock.HeldKey(ctx, "n", "k")
		require.True(t, ok)
		require.Equal(t, "test:n:k", held.Key())
		require.Equal(t, "test:n:K", l.Locks(1)[0].Key)
		found, err := l.Inspect(ctx, "n", "k")
		require.NoError(t, err)
		require.Equal(t, "test:n:k", found.Key)
	})
}

// A redaction that panics, or ends its goroutine, harms no lock, and shows no key.
func TestRedactionThatDoesNotReturn(t *testing.T) {
	for name, redact := range map[string]func(string) string{
		"panics": func(key string) string { panic(key) }, "exits": func(string) string { runtime.Goexit(); return "" },
	} {
		bubble(t, name, func(t *testing.T) {
			var lines strings.Builder
			l, b := newLocker(t, logTo(&lines), wllock.WithKeyRedaction(redact))
			for what, want := range map[string]error{"lost": wllock.ErrLeaseLost, "overstayed": wllock.ErrLockTimeMax} {
				began := time.Now()
				err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
					if what == "lost" {
						b.Expire("test:n:k")
					}
					<-ctx.Done()
					return ctx.Err()
				}, wllock.WithLockTimeMax(ttl))
				require.ErrorIs(t, err, want)
				require.Contains(t, err.Error(), `"test:n:redacted"`)
				require.LessOrEqual(t, time.Since(began), ttl)
				synctest.Wait()
			}
			defer hold(t, l, "n", "k")()
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
			require.Equal(t, 2, strings.Count(lines.String(), "test:n:redacted"), lines.String())
		})
	}
}

// A redaction that takes its time makes no context end late, and no other holder wait.
func TestSlowRedactionDelaysNoLock(t *testing.T) {
	for _, what := range []string{"lost", "overstayed"} {
		bubble(t, what, func(t *testing.T) {
			const holds, slow = 100, 50 * time.Millisecond
			var lines strings.Builder
			l, b := newLocker(t, logTo(&lines), wllock.WithKeyRedaction(func(string) string { time.Sleep(slow); return "#" }))
			other := lockerOn(t, b)
			ended, entered := make(chan time.Time, holds), make(chan time.Time, holds)
			for i := range holds {
				started(l, keys(strconv.Itoa(i)), func(ctx context.Context) error {
					<-ctx.Done()
					ended <- time.Now()
					return nil
				}, wllock.WithLockTimeMax(ttl))
			}
			at := time.Now()
			for i := range holds {
				started(other, keys(strconv.Itoa(i)), func(context.Context) error { entered <- time.Now(); return nil })
			}
			if what == "lost" {
				for i := range holds {
					b.Expire("test:n:" + strconv.Itoa(i))
				}
			} else {
				at = at.Add(ttl)
			}
			for range holds {
				require.LessOrEqual(t, (<-ended).Sub(at), distributed.HeartbeatInterval(ttl), "the loss is known by then")
				require.LessOrEqual(t, (<-entered).Sub(at), distributed.HeartbeatInterval(ttl)+slow)
			}
			time.Sleep(2 * holds * slow) // the log is told one after the other
		})
	}
}

// A decorator says which key the holder was asked for.
func TestRedactedErrorsTellWhatTheyAre(t *testing.T) {
	elsewhere := func(_ context.Context, r *distributed.Request) error {
		return fmt.Errorf("%s: %w", r.Key, distributed.Held("web-1"))
	}
	l := lockerOn(t, asking(memlock.New(), elsewhere), wllock.WithKeyRedaction(wllock.HashKeys([]byte(keySecret))))
	err := l.Do(t.Context(), "n", "4711", never(t), wllock.NoWait())
	require.Equal(t, "web-1", refusal(t, err, wllock.ErrHeld, wllock.TierDistributed).Holder)
	require.NotContains(t, err.Error(), "4711")
	require.NotContains(t, fmt.Sprintf("%#v", errors.Unwrap(err)), "4711")
}

// With a redaction, who reads the log can find the lock without debug lines.
func TestLogLinesHaveTheRedactedKey(t *testing.T) {
	var lines strings.Builder
	hash := wllock.WithKeyRedaction(wllock.HashKeys([]byte(keySecret)))
	l := lockerOn(t, refusesReleases(memlock.New(), `"test:n:4711"`), logTo(&lines), hash)
	require.NoError(t, l.Do(t.Context(), "n", "4711", nothing))
	require.NoError(t, l.Close(t.Context()))
	require.Contains(t, lines.String(), "key=test:n:#645fc47328abdeed")
	require.Contains(t, lines.String(), "lock not released")
	require.NotContains(t, lines.String(), "4711")
}

// What WithEvents is told, in order: who got, lost and was refused which lock, how, and after how long.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []wllock.Event // of the goroutine that tells, read while it is idle
		l, b := newLocker(t, wllock.WithEvents(func(e wllock.Event) { got = append(got, e) }))
		told := func(want ...wllock.Event) {
			t.Helper()
			synctest.Wait()
			require.Len(t, got, len(want))
			for i, e := range got {
				require.WithinDuration(t, time.Now(), e.At, ttl)
				require.Equal(t, e.Kind == wllock.EventRefused, e.Fence == 0)
				e.At, e.Fence = time.Time{}, 0
				w := want[i]
				w.Name, w.Key = "n", "test:n:k"
				if w.Err != nil {
					require.ErrorIs(t, e.Err, w.Err)
					e.Err, w.Err = nil, nil
				}
				require.Equal(t, w, e)
			}
			got = nil
		}
		release := hold(t, l, "n", "k")
		next := started(l, keys("k"), nothing)
		require.Error(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithCallThreshold(1)))
		var refused *wllock.Error
		require.ErrorAs(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(time.Millisecond)), &refused)
		told(wllock.Event{Kind: wllock.EventAcquired}, wllock.Event{Kind: wllock.EventRefused, Err: wllock.ErrQueueFull},
			wllock.Event{Kind: wllock.EventRefused, LocalWait: time.Millisecond, Err: refused})
		release()
		require.NoError(t, <-next)
		held := time.Millisecond
		told(wllock.Event{Kind: wllock.EventReleased, Held: held}, wllock.Event{Kind: wllock.EventAcquired, Handoff: true, LocalWait: held},
			wllock.Event{Kind: wllock.EventReleased, Handoff: true, LocalWait: held})

		other := lockerOn(t, b)
		release = hold(t, other, "n", "k")
		next = started(l, keys("k"), losing(b, "k"), wllock.Shared())
		time.Sleep(time.Millisecond)
		release()
		require.Error(t, <-next)
		synctest.Wait()
		got[1].Held = 0
		told(wllock.Event{Kind: wllock.EventAcquired, Shared: true, DistributedWait: held},
			wllock.Event{Kind: wllock.EventLost, Shared: true, DistributedWait: held, Err: wllock.ErrLeaseLost})
	})
}
