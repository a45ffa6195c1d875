package wllock_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// Keys may hold personal data, so they are logged at the debug level only.
func TestKeysAreLoggedAtDebugLevelOnly(t *testing.T) {
	for level, named := range map[slog.Level]bool{slog.LevelWarn: false, slog.LevelInfo: false, slog.LevelDebug: true} {
		t.Run(level.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged strings.Builder
				l, b := newLocker(t, wllock.WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: level}))))
				lostAfter(t, l.Do(t.Context(), "n", "marker:"+strings.Repeat("x", 100), func(ctx context.Context) error {
					b.Expire("test:n:marker:" + strings.Repeat("x", 100))
					<-ctx.Done()
					return nil
				}))
				require.NoError(t, l.Do(t.Context(), "n", "marker:1", func(ctx context.Context) error {
					<-ctx.Done()
					b.Partition(true)
					return nil
				}, wllock.WithLockTimeMax(time.Millisecond), wllock.SyncRelease()))
				b.Partition(false)
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
		if lost > 0 {
			t.Errorf("%d leases of others were lost", lost)
		}
		require.LessOrEqual(t, waited, 2*ttl)
	})
}
