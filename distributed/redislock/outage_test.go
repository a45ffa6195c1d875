package redislock

import (
	"context"
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

func TestSentinelFailover(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	group := redistest.StartSentinel(t)
	all := behind(t, group)
	a, b := newUser(t, all["New"]).lasting(2*time.Second), newUser(t, all["Open"]).lasting(2*time.Second)
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
