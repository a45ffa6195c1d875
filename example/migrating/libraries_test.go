package migrating

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/internal/redistest"
)

// library is one to come from.
type library struct {
	pattern config.KeyPattern // of the same key
	gap     time.Duration     // of the guide
	do      do                // with wllock
	// open starts a process. held acquires the lock without waiting, or returns false.
	open func(t *testing.T, s *redistest.Server) process
}

// do runs fn under the lock that the library calls key, with a Locker that has its pattern.
type do func(ctx context.Context, l *wllock.Locker, fn wllock.Func, opts ...wllock.CallOption) error

func one(ctx context.Context, l *wllock.Locker, fn wllock.Func, opts ...wllock.CallOption) error {
	return l.Do(ctx, "orders", "42", fn, opts...)
}

// majority takes two of the three keys that rueidislock takes two of, so that either has one which the other needs.
func majority(ctx context.Context, l *wllock.Locker, fn wllock.Func, opts ...wllock.CallOption) error {
	return l.DoAll(ctx, []wllock.Resource{{Name: "0", Key: key}, {Name: "1", Key: key}}, fn, opts...)
}

type process struct {
	turn func(ctx context.Context, work func()) error
	try  func(ctx context.Context) (release func(), ok bool)
}

// old starts a service on the library, ours one on wllock.
func (l library) old(t *testing.T, s *redistest.Server, name string) service {
	t.Helper()
	return service{name, l.open(t, s).turn}
}

func (l library) ours(t *testing.T, s *redistest.Server, name string) service {
	t.Helper()
	return ours(t, s, name, l, l.gap)
}

// libraries with the settings that they have by default or recommend; rueidislock with a KeyMajority of 1 and of 2.
var libraries = map[string]library{
	"redsync":        {"{name}:{key}", 60 * time.Millisecond, one, openRedsync},
	"redislock":      {"{name}:{key}", 20 * time.Millisecond, one, openBSM(50 * time.Millisecond)},
	"rueidislock, 1": {"rueidislock:0:{name}:{key}", 5 * time.Millisecond, one, openRueidis(1)},
	"rueidislock, 2": {"rueidislock:{name}:{key}", 5 * time.Millisecond, majority, openRueidis(2)},
}

// openRedsync uses its defaults: 8 s, 32 tries, 50 to 250 ms apart.
func openRedsync(t *testing.T, s *redistest.Server) process {
	t.Helper()
	return mutexes(redsync.New(goredis.NewPool(s.Client())), key)
}

func mutexes(all *redsync.Redsync, key string, opts ...redsync.Option) process {
	release := func(m *redsync.Mutex) { _, _ = m.Unlock() }
	return process{
		turn: func(ctx context.Context, work func()) error {
			m := all.NewMutex(key, opts...)
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			defer release(m)
			work()
			return nil
		},
		try: func(ctx context.Context) (func(), bool) {
			m := all.NewMutex(key, opts...)
			return func() { release(m) }, m.TryLockContext(ctx) == nil
		},
	}
}

func openBSM(backoff time.Duration) func(*testing.T, *redistest.Server) process {
	return func(t *testing.T, s *redistest.Server) process {
		t.Helper()
		client := bsm.New(s.Client())
		release := func(l *bsm.Lock) { _ = l.Release(context.Background()) }
		return process{
			turn: func(ctx context.Context, work func()) error {
				l, err := client.Obtain(ctx, key, 10*time.Second, &bsm.Options{RetryStrategy: bsm.LinearBackoff(backoff)})
				if err != nil {
					return err
				}
				defer release(l)
				work()
				return nil
			},
			try: func(ctx context.Context) (func(), bool) {
				l, err := client.Obtain(ctx, key, 10*time.Second, nil)
				return func() { release(l) }, err == nil
			},
		}
	}
}

func openRueidis(majority int32) func(*testing.T, *redistest.Server) process {
	return func(t *testing.T, s *redistest.Server) process {
		t.Helper()
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true},
			KeyMajority:  majority, NoLoopTracking: true,
			TryNextAfter: time.Second, // 20 ms is short for a busy machine
		})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		return process{
			turn: func(ctx context.Context, work func()) error {
				inside, release, err := l.WithContext(ctx, key)
				if err != nil {
					return err
				}
				defer release()
				if inside.Err() != nil {
					return errors.New("lost")
				}
				work()
				return nil
			},
			try: func(ctx context.Context) (func(), bool) {
				_, release, err := l.TryWithContext(ctx, key)
				return release, err == nil
			},
		}
	}
}

// TestGuideSaysWhatIsTested: the settings in docs/migrating.md are those of the tests.
func TestGuideSaysWhatIsTested(t *testing.T) {
	guide, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	for name, l := range libraries {
		require.Contains(t, string(guide), fmt.Sprintf("| `%s` | `%v` |", l.pattern, l.gap), name)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
