package redislock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func TestRedisAwayAtStartIsUnavailableByTheDeadline(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	p := redistest.NewProxy(t, s.Addr)
	p.SetHalfOpen(true)
	for name, addr := range map[string]string{"refused": s.Addr, "silent": p.Addr} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, open(t, addr))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, _, err := u.enter(ctx, key(t))
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			inTime(t, "Enter", time.Since(start), 200*time.Millisecond)
			start = time.Now()
			_, _, err = u.enter(t.Context(), key(t)) // a caller without a deadline
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			inTime(t, "Enter without a deadline", time.Since(start), firstBudget)
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, u.b.Ping(ctx), distributed.ErrUnavailable)
			start = time.Now()
			require.NoError(t, u.b.Close())
			inTime(t, "Close", time.Since(start), closeGrace)
		})
	}
}

func TestRedisAwayLaterIsUnavailableByTheDeadline(t *testing.T) {
	testscope.Long(t, "stops a server")
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	l := u.lease(key(t))
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, _, err := u.enter(ctx, key(t)+"b")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	inTime(t, "Enter", time.Since(start), 100*time.Millisecond)
	<-l.Lost()
	inTime(t, "the lease is lost", time.Since(start), testTTL)
	s.Resume()
	release(t, u.get(key(t)+"b"))
}

// TestBackAgainServesSoon: 100 instances wait, half of them with a place, when the server goes away and comes back
// without its data.
func TestBackAgainServesSoon(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	away := 2 * time.Second
	t.Run("short", func(t *testing.T) { backAgain(t, away) })
	t.Run("long", func(t *testing.T) {
		testscope.Longest(t, "an outage of a minute")
		backAgain(t, time.Minute)
	})
}

func backAgain(t *testing.T, away time.Duration) {
	s := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan time.Time, 100)
	var wg sync.WaitGroup
	var first atomic.Bool
	for range 5 {
		b := open(t, s.Addr)
		for range 20 {
			u := newUser(t, b).lasting(5 * time.Second)
			wg.Go(func() { waitOut(ctx, u, key(t), &first, served) })
		}
	}
	require.Eventually(t, func() bool { return queueLength(s, key(t)) == 99 }, patience, 5*time.Millisecond)
	<-served // the one that holds it
	s.Kill()
	time.Sleep(away)
	s.Restart()
	start := time.Now()
	next := <-served
	inTime(t, "first grant after the return", next.Sub(start), 2*time.Second-slack)
	for range 49 {
		<-served
	}
	inTime(t, "fifty grants after the return", time.Since(start), 5*time.Second)
	cancel()
	wg.Wait()
}

// waitOut is an instance that asks until it is served, reports that, holds the lock a little, and releases it. The first
// of all keeps it until it is lost.
func waitOut(ctx context.Context, u user, key string, first *atomic.Bool, served chan<- time.Time) {
	for ctx.Err() == nil {
		l, p, err := u.enter(ctx, key)
		if err != nil {
			continue // unavailable: Enter has taken its time
		}
		if p != nil {
			select {
			case l = <-p.Granted():
			case <-ctx.Done():
				_ = p.Leave(context.Background())
			}
		}
		if l == nil {
			continue // the place was lost
		}
		served <- time.Now()
		if !first.Swap(true) {
			<-l.Lost()
			return
		}
		time.Sleep(time.Millisecond)
		_ = l.Release(context.Background())
		return
	}
}

func TestSentinelFailover(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	group := redistest.StartSentinel(t)
	byClient, err := New(group.Client())
	require.NoError(t, err)
	t.Cleanup(func() { _ = byClient.Close() })
	byURL, err := Open("redis+sentinel://" + group.Sentinels[0].Addr + "," + group.Sentinels[1].Addr + "/" + redistest.MasterName)
	require.NoError(t, err)
	t.Cleanup(func() { _ = byURL.Close() })

	a, b := newUser(t, byClient).lasting(2*time.Second), newUser(t, byURL).lasting(2*time.Second)
	var last uint64
	turn := func(u user) {
		l := u.get(key(t))
		n := fence(t, l)
		require.Greater(t, n, last)
		last = n
		if err := l.Release(t.Context()); err != nil {
			require.ErrorIs(t, err, distributed.ErrLeaseLost) // the write was not replicated
		}
	}
	turn(a)
	turn(b)
	group.Failover() // the old primary turns into a replica and says READONLY
	start := time.Now()
	for _, u := range []user{a, b} {
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l, p, err := u.enter(ctx, key(t))
			cancel()
			if err == nil {
				if p != nil {
					l = granted(t, p)
				}
				release(t, l)
				break
			}
			require.ErrorIs(t, err, distributed.ErrUnavailable)
		}
	}
	inTime(t, "both served after a failover", time.Since(start), 5*time.Second)
	turn(a)
	turn(b)
}

func TestReadOnlyIsUnavailable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	release(t, u.lease(key(t)))
	s.Do("REPLICAOF", "127.0.0.1", "1")
	_, _, err := u.enter(t.Context(), key(t))
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "READONLY")
	s.Do("REPLICAOF", "NO", "ONE")
	release(t, u.get(key(t)))
}

func TestBusyScriptPasses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("CONFIG", "SET", "busy-reply-threshold", "10")
	u := newUser(t, open(t, s.Addr)).lasting(5 * time.Second)
	release(t, u.lease(key(t)))
	endless := make(chan error, 1)
	go func() { endless <- s.Client().Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(t, func() bool {
		return redis.HasErrorPrefix(s.Client().Ping(t.Context()).Err(), "BUSY")
	}, patience, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err := u.enter(ctx, key(t))
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	time.AfterFunc(200*time.Millisecond, func() { _ = s.Client().ScriptKill(context.Background()).Err() })
	release(t, u.get(key(t))) // waits for the end of it
	require.Error(t, <-endless)
}
