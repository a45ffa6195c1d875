package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// enough turns of each service to see that it does not starve.
const enough = 10

// people is a crowd as it should be while both libraries are alive: with pauses between turns.
func people() *crowd {
	return &crowd{callers: 2, work: time.Millisecond, pause: 30 * time.Millisecond}
}

// everyLibrary runs a step for each library, with a server of its own.
func everyLibrary(t *testing.T, step func(t *testing.T, l library, s *redistest.Server)) {
	t.Helper()
	t.Parallel()
	for name, l := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t, l, redistest.Start(t))
		})
	}
}

// TestStep1SameKey: with the pattern both libraries mean the same lock.
func TestStep1SameKey(t *testing.T) {
	everyLibrary(t, func(t *testing.T, l library, s *redistest.Server) {
		theirs, us := l.open(t, s), locker(t, s, l.pattern, l.gap)
		release, ok := theirs.try(t.Context())
		require.True(t, ok)
		require.ErrorIs(t, l.do(t.Context(), us, nothing, wllock.NoWait()), wllock.ErrHeld)
		release()
		require.NoError(t, l.do(t.Context(), us, func(ctx context.Context) error {
			_, ok := theirs.try(ctx)
			require.False(t, ok)
			return nil
		}, wllock.SyncRelease()))
		release, ok = theirs.try(t.Context())
		require.True(t, ok)
		release()
	})
}

// TestStep2TheFirstServiceMoves: one process on wllock beside two of the other library.
func TestStep2TheFirstServiceMoves(t *testing.T) {
	testscope.Long(t, "another library may starve its own processes")
	everyLibrary(t, func(t *testing.T, l library, s *redistest.Server) {
		people().share(t, enough, l.old(t, s, "old 1"), l.old(t, s, "old 2"), l.ours(t, s, "new"))
	})
}

// TestStep3TheLastOneIsLeft: processes on wllock hand the lock over without freeing it, but for the gap.
func TestStep3TheLastOneIsLeft(t *testing.T) {
	everyLibrary(t, func(t *testing.T, l library, s *redistest.Server) {
		people().share(t, enough, l.old(t, s, "old"),
			l.ours(t, s, "new 1"), l.ours(t, s, "new 2"))
	})
}

// TestStep4TheGapGoes: from one process after the other, while all of them run.
func TestStep4TheGapGoes(t *testing.T) {
	everyLibrary(t, func(t *testing.T, l library, s *redistest.Server) {
		people().share(t, enough, l.ours(t, s, "with gap"),
			ours(t, s, "without", l, 0), ours(t, s, "also without", l, 0))
	})
}

// TestTriesNeedNoGap: with a gap NoWait is refused after a release, though nobody holds the lock; a lock that all only try for is shared without.
func TestTriesNeedNoGap(t *testing.T) {
	t.Parallel()
	s, l := redistest.Start(t), libraries["redislock"]
	patient := locker(t, s, l.pattern, time.Hour)
	require.NoError(t, l.do(t.Context(), patient, nothing, wllock.NoWait(), wllock.SyncRelease()))
	require.ErrorIs(t, l.do(t.Context(), patient, nothing, wllock.NoWait()), wllock.ErrHeld)
	s.Do("FLUSHALL")

	tries := func(name string) service { return on(name, locker(t, s, l.pattern, 0), l.do, wllock.NoWait()) }
	old := l.open(t, s)
	people().share(t, enough, tries("new 1"), tries("new 2"), service{"old", func(ctx context.Context, work func()) error {
		release, ok := old.try(ctx)
		if !ok {
			return wllock.ErrHeld
		}
		defer release()
		work()
		return nil
	}})
}

// TestStep4OneKeyOfTwo: what is left of rueidislock's majority is one lock, from one process after the other.
func TestStep4OneKeyOfTwo(t *testing.T) {
	t.Parallel()
	s, two := redistest.Start(t), libraries["rueidislock, 2"]
	single := two
	single.do = func(ctx context.Context, l *wllock.Locker, fn wllock.Func, opts ...wllock.CallOption) error {
		return l.Do(ctx, "0", key, fn, opts...)
	}
	people().share(t, enough, two.ours(t, s, "two"), ours(t, s, "one", single, 0), ours(t, s, "also one", single, 0))
}

// TestAnyTwoKeysAreRueidislocks: a holder that has lost one of its three keys still has the lock.
func TestAnyTwoKeysAreRueidislocks(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"0", "1", "2"} {
		s, l := redistest.Start(t), libraries["rueidislock, 2"]
		us := locker(t, s, l.pattern, l.gap)
		release, ok := l.open(t, s).try(t.Context())
		require.True(t, ok)
		three := []string{"rueidislock:0:" + key, "rueidislock:1:" + key, "rueidislock:2:" + key}
		require.Eventually(t, func() bool { return s.Do("EXISTS", three[0], three[1], three[2]) == int64(3) }, 10*time.Second, time.Millisecond)
		s.Do("DEL", "rueidislock:"+lost+":"+key)
		require.ErrorIs(t, l.do(t.Context(), us, nothing, wllock.NoWait()), wllock.ErrHeld, lost)
		release()
		require.NoError(t, l.do(t.Context(), us, nothing))
	}
}
