package stack_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/wllocktest"
)

// lineLog is a log that may be read while it is written.
type lineLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lineLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

func (l *lineLog) option() wllock.Option {
	return wllock.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// Callers in line behind one that cannot reach the backend have met no contention: their error Is ErrUnavailable, whether
// WithWait, their context or NoWait ends their wait.
func TestCallersBehindAHeadWithoutAnswerGetUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(5*time.Second))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		faults.Hang()
		errs := make(chan error, 20)
		wait := 550 * time.Millisecond // before it is decided that the backend is away
		for i := range cap(errs) {
			go func() {
				ctx, opt := t.Context(), wllock.WithWait(wait)
				if i%2 == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, wait)
					defer cancel()
					opt = wllock.WithWait(0)
				}
				errs <- l.Do(ctx, "n", "k", never(t), opt)
			}()
		}
		time.Sleep(wait - time.Millisecond)
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrUnavailable)
		for range cap(errs) {
			require.ErrorIs(t, <-errs, wllock.ErrUnavailable)
		}
		require.Zero(t, l.Stats().Total.Timeouts)
		faults.Heal()
		time.Sleep(5 * time.Second)
		release := hold(t, l, "n", "k")
		defer release()
		err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(wait))
		require.ErrorIs(t, err, wllock.ErrWaitTimeout)
		require.NotErrorIs(t, err, wllock.ErrUnavailable, "this is contention")
	})
}

// A LocalOnly with a short T waits for the lease of an instance with a long one.
func TestLocalOnlyWaitsForALongerLeaseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		long := lockerOn(t, b, wllock.WithLeaseTTL(10*ttl))
		short := localOnlyOn(t, b)
		k, err := long.Acquire(t.Context(), "n", "k", wllock.WithLockTimeMax(0))
		require.NoError(t, err)
		time.Sleep(4 * ttl) // renewed
		b.Partition(true)
		require.NoError(t, short.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			require.True(t, h.Degraded())
			require.ErrorIs(t, k.Err(), wllock.ErrLeaseLost)
			return nil
		}))
		b.Partition(false)
		require.ErrorIs(t, k.Release(t.Context()), wllock.ErrLeaseLost)
	})
}

// The server is killed under load: every call returns by its deadline, nobody is told of contention, refusals are quick on
// the hot key too, and the log has few lines, the first with the cause.
func TestKilledServerIsToldAtOnce(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	s := redistest.Start(t)
	log := new(lineLog)
	l := lockerOn(t, redisOn(t, s.Addr), wllock.WithLeaseTTL(5*time.Second), log.option())
	const wait = 2 * time.Second
	var killed atomic.Pointer[time.Time]
	var mu sync.Mutex
	var took []time.Duration
	var longest time.Duration
	stop := make(chan struct{})
	stalled := stalls(t)
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := "hot"
				if i%2 == 0 {
					key = strconv.Itoa(n % 100)
				}
				asked := time.Now()
				err := l.Do(context.Background(), "n", key, func(context.Context) error { time.Sleep(time.Millisecond); return nil }, wllock.WithWait(wait))
				if k := killed.Load(); k != nil && asked.Sub(*k) > 300*time.Millisecond && err != nil { // else a lease still lasts
					mu.Lock()
					took = append(took, time.Since(asked))
					mu.Unlock()
					if !errors.Is(err, wllock.ErrUnavailable) || errors.Is(err, wllock.ErrWaitTimeout) {
						t.Error(err)
					}
					time.Sleep(5 * time.Millisecond)
				}
				mu.Lock()
				longest = max(longest, time.Since(asked))
				mu.Unlock()
			}
		})
	}
	time.Sleep(time.Second)
	now := time.Now()
	killed.Store(&now)
	s.Kill()
	time.Sleep(2 * time.Second)
	close(stop)
	callers.Wait()
	slices.Sort(took)
	late := stalled()
	require.NotEmpty(t, took)
	require.Less(t, quantile(took, .5), 5*time.Millisecond+4*quantile(late, .5))
	require.Less(t, quantile(took, .99), 100*time.Millisecond+4*quantile(late, .99)+quantile(late, 1))
	require.Less(t, longest, wait+500*time.Millisecond+4*quantile(late, 1))
	if quantile(late, 1) < wait/4 { // else a caller may have used up its time
		require.Zero(t, l.Stats().Total.Timeouts)
	}
	require.False(t, l.Stats().Backend.Available)
	s.Restart()
	require.Eventually(t, func() bool { return l.Do(t.Context(), "n", "k", nothing) == nil }, 2*time.Second, 10*time.Millisecond)
	require.Contains(t, log.lines()[0], "refused")
	require.Contains(t, log.lines()[0], s.Addr)
	require.LessOrEqual(t, len(log.lines()), 10, fmt.Sprint(strings.Join(log.lines(), "\n")))
}

// A server that answers and refuses is not away: LocalOnly lets nobody in beside a lease that is held and renewed, and the
// server's words are in the error and in the first line of the log.
func TestLocalOnlyIsNotDegradedByRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		words  string
		refuse func(s *redistest.Server)
	}{
		"a right is taken away":  {"NOPERM", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "shop", "-evalsha", "-eval") }},
		"the keys are withdrawn": {"NOPERM", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "shop", "resetkeys") }},
		"the password changes": {"", func(s *redistest.Server) {
			s.Do("ACL", "SETUSER", "shop", "resetpass", ">other")
			s.Do("CLIENT", "KILL", "USER", "shop")
		}},
		"it only reads":      {"READONLY", func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }},
		"its memory is full": {"OOM", func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Do("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all")
			k, err := lockerOn(t, redisOn(t, s.Addr)).Acquire(t.Context(), "n", "k", wllock.WithLockTimeMax(0))
			require.NoError(t, err)
			defer func() { _ = k.Release(context.Background()) }()
			client := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "shop", Password: "secret"})
			defer client.Close()
			b, err := redislock.New(client)
			require.NoError(t, err)
			log := new(lineLog)
			l := lockerOn(t, b, wllock.WithOutage(wllock.LocalOnly), wllock.WithOwnedBackend(), log.option())
			require.NoError(t, l.Do(t.Context(), "n", "own", nothing))
			c.refuse(s)
			for began := time.Now(); time.Since(began) < 4*ttl; time.Sleep(20 * time.Millisecond) {
				err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(ttl/2))
				require.ErrorIs(t, err, wllock.ErrUnavailable)
				require.ErrorContains(t, err, c.words)
				require.Zero(t, l.Stats().Total.Degraded)
			}
			require.False(t, l.Stats().Backend.Available)
			require.Contains(t, log.lines()[0], "backend refuses")
			require.Contains(t, log.lines()[0], c.words)
			require.LessOrEqual(t, len(log.lines()), 10, fmt.Sprint(log.lines()))
		})
	}
}

// Nor by a wrong password from the start.
func TestLocalOnlyWithAWrongPasswordIsNotDegraded(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all")
	log := new(lineLog)
	l := lockerOn(t, redisOn(t, "shop:other@"+s.Addr), wllock.WithOutage(wllock.LocalOnly), log.option())
	for began := time.Now(); time.Since(began) < 3*ttl; time.Sleep(20 * time.Millisecond) {
		err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(ttl))
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorContains(t, err, "WRONGPASS")
	}
	require.Contains(t, log.lines()[0], "WRONGPASS")
}
