package doors

import (
	"context"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/handler"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)                                                                                                   // tusd logs each request
	goleak.VerifyTestMain(dbtest.Main(m), goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer")) // of one that is not begun
}

const (
	name = "n"
	key  = "shop"
)

// door is a lock as its tool uses it.
type door struct {
	lock   func(ctx context.Context) error
	unlock func() error
	late   error // Is what lock returns when ctx ends
}

// doors are those of the tools that wait, in a process. They wait for a second.
var doors = map[string]func(l *wllock.Locker) door{
	"goose": func(l *wllock.Locker) door {
		g := &Goose{Locker: l, Name: name, Key: key}
		return door{
			func(ctx context.Context) error { return g.Lock(ctx, nil) },
			func() error { return g.Unlock(context.Background(), nil) }, context.DeadlineExceeded,
		}
	},
	"golang-migrate": func(l *wllock.Locker) door {
		m := &Migrate{Locker: l, Name: name, Key: key, Wait: time.Second}
		return door{func(context.Context) error { return m.Lock() }, m.Unlock, database.ErrLocked}
	},
	"certmagic": func(l *wllock.Locker) door {
		c := &CertMagic{Locker: l, Name: name}
		return door{
			func(ctx context.Context) error { return c.Lock(ctx, key) },
			func() error { return c.Unlock(context.Background(), key) }, context.DeadlineExceeded,
		}
	},
	"tusd": func(l *wllock.Locker) door {
		lock, _ := (&Uploads{Locker: l, Name: name}).NewLock(key)
		return door{
			func(ctx context.Context) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel() // as tusd does
				return lock.Lock(ctx, func() {})
			},
			lock.Unlock, handler.ErrLockTimeout,
		}
	},
}

// inEach tests each door in two processes.
func inEach(t *testing.T, test func(t *testing.T, ctx context.Context, first, second door, faults *wllocktest.Faults)) {
	for tool, open := range doors {
		t.Run(tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, faults := wllocktest.NewWithFaults(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				test(t, ctx, open(l), open(faults.Process()), faults)
			})
		})
	}
}

func TestSecondIsThroughAfterTheFirst(t *testing.T) {
	inEach(t, func(t *testing.T, ctx context.Context, first, second door, _ *wllocktest.Faults) {
		require.NoError(t, first.lock(ctx))
		done := make(chan error, 1)
		go func() { done <- second.lock(ctx) }()
		synctest.Wait()
		require.Empty(t, done, "both have the lock")
		require.NoError(t, first.unlock())
		require.NoError(t, <-done)
		require.NoError(t, second.unlock())
	})
}

func TestLockLastsAsLongAsTheToolWorks(t *testing.T) {
	inEach(t, func(t *testing.T, _ context.Context, first, second door, _ *wllocktest.Faults) {
		require.NoError(t, first.lock(t.Context()))
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, second.lock(ctx), second.late)
		require.NoError(t, first.unlock())
	})
}

func TestOneThatGivesUpLeavesNothing(t *testing.T) {
	inEach(t, func(t *testing.T, ctx context.Context, first, second door, _ *wllocktest.Faults) {
		require.NoError(t, first.lock(ctx))
		require.ErrorIs(t, second.lock(ctx), second.late)
		require.NoError(t, first.unlock())
		require.NoError(t, first.lock(t.Context()))
		require.NoError(t, first.unlock())
	})
}

func TestUnlockWithoutLockIsAnError(t *testing.T) {
	inEach(t, func(t *testing.T, ctx context.Context, first, _ door, _ *wllocktest.Faults) {
		require.Error(t, first.unlock())
		require.NoError(t, first.lock(ctx))
		require.NoError(t, first.unlock())
		require.Error(t, first.unlock())
	})
}

// TestLockThatWasLostIsAnothers: what its Unlock says is a matter of the tool, and it does not end the other's lock.
func TestLockThatWasLostIsAnothers(t *testing.T) {
	inEach(t, func(t *testing.T, ctx context.Context, first, second door, faults *wllocktest.Faults) {
		require.NoError(t, first.lock(ctx))
		faults.Lose(name, key)
		require.NoError(t, second.lock(ctx))
		_ = first.unlock()
		require.Error(t, first.unlock())
		require.ErrorIs(t, first.lock(ctx), first.late, "the second has it")
		require.NoError(t, second.unlock())
	})
}

// TestNamesMakeKeys: all at once, so that no two of them meet in one key.
func TestNamesMakeKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a/", 300)
	names := []string{
		"issue_cert_example.com", "issue_cert_*.example.com", "issue_cert_*.EXAMPLE.com", "register_acme_account_a@b.c:443", "a/b/c", "/a/b/c", "a//b", "a:b", ":", " ", "",
		"ä", "a\u0308", "世界", "\xff", "\xfe", "\x00", "a\nb", "a b", long, long + "b", strings.Repeat("x", 512), strings.Repeat("x", 513), hashed,
		keyOf(long), keyOf(keyOf(long)), keyOf("\xff"),
	}
	c := &CertMagic{Locker: wllocktest.New(t), Name: name}
	for _, n := range names {
		taken, err := c.TryLock(t.Context(), n)
		require.NoError(t, err, "%q", n)
		require.True(t, taken, "%q", n)
	}
	for _, n := range names {
		taken, err := c.TryLock(t.Context(), n)
		require.NoError(t, err, "%q", n)
		require.False(t, taken, "%q", n)
		require.NoError(t, c.Unlock(t.Context(), n))
	}
}
