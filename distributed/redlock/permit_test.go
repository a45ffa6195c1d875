package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// linked is a backend that reaches only these of the servers.
func linked(t *testing.T, s *servers, reaches ...int) *Backend {
	t.Helper()
	var clients []redis.UniversalClient
	for i, one := range s.all {
		p := redistest.NewProxy(t, one.Addr)
		p.SetHalfOpen(len(reaches) > 0)
		for _, r := range reaches {
			if r == i {
				p.SetHalfOpen(false)
			}
		}
		clients = append(clients, one.Client(func(o *redis.Options) { o.Addr = p.Addr }))
	}
	b, err := New(clients, WithQuorumFences())
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func permit(instance string, n int) distributed.Request {
	req := request("k", instance)
	req.Mode, req.Limit, req.TTL = distributed.Shared, n, 20*time.Second
	return req
}

// Each of four servers knows of one holder only, so each votes for one more, and a count of votes would admit a third to two permits.
func TestVotesAloneWouldAdmitTooManyPermits(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	t.Parallel()
	s := startFor(t, 5, 20*time.Second)
	left, right, all := linked(t, s, 0, 1, 2), linked(t, s, 2, 3, 4), linked(t, s)
	first, _, err := left.Enter(t.Context(), permit("left", 2))
	require.NoError(t, err)
	require.NotNil(t, first)
	second, _, err := right.Enter(t.Context(), permit("right", 2))
	require.NoError(t, err)
	require.NotNil(t, second)
	for i, want := range []int64{1, 1, 2, 1, 1} {
		set, _ := s.all[i].Do("KEYS", prefix+"r:*").([]any)
		require.Len(t, set, 1)
		require.Equal(t, want, s.all[i].Do("ZCARD", set[0]), "server %d", i)
	}

	refused := permit("third", 2)
	refused.NoWait = true
	_, _, err = all.Enter(t.Context(), refused)
	require.ErrorIs(t, err, distributed.ErrHeld)
	refused.Limit = 3
	require.Eventually(t, func() bool { // on a busy machine, what the refused one has taken may be on its way back
		third, _, err := all.Enter(t.Context(), refused)
		return err == nil && third.Release(t.Context()) == nil
	}, patience, 100*time.Millisecond, "a third of three is admitted")

	_, p, err := all.Enter(t.Context(), permit("fourth", 2))
	require.NoError(t, err)
	require.NotNil(t, p)
	select {
	case <-p.Granted():
		t.Fatal("a third holder of two permits")
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, first.Release(t.Context()))
	select {
	case l := <-p.Granted():
		require.NoError(t, l.Release(t.Context()))
	case <-time.After(patience):
		t.Fatal("not granted, though one is free")
	}
	require.NoError(t, second.Release(t.Context()))
}

// A process that takes the gates and dies holds them for W.
func TestGatesOfADeadWaiterOpen(t *testing.T) {
	t.Parallel()
	s := startFor(t, 3, huntTTL)
	dead, b := linked(t, s), linked(t, s)
	require.NoError(t, dead.Ping(t.Context()))
	req := permit("dead", 1)
	req.TTL = huntTTL
	a := newAttempt(dead, req)
	for _, n := range dead.nodes { // as enter does, and then nothing
		answered := make(chan struct{})
		n.send(&ask{Call: a.call(enterScript, a.letter(), 1, a.asked, 0, ""), lane: a.lane, limit: time.Second, done: func(k *ask) {
			require.NoError(t, k.Err)
			require.True(t, readEnter(k.Reply).permit)
			close(answered)
		}})
		<-answered
	}
	require.NoError(t, dead.Close())
	start := time.Now()
	req.Instance = "next"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		l, p, err := b.Enter(ctx, req)
		if errors.Is(err, distributed.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		require.NoError(t, err)
		if p != nil {
			l = <-p.Granted()
		}
		if l != nil {
			t.Logf("after %v", time.Since(start))
			require.NoError(t, l.Release(ctx))
			return
		}
	}
}

func TestTooManyPermitsAreRefused(t *testing.T) {
	t.Parallel()
	b := linked(t, startFor(t, 3, huntTTL))
	_, _, err := b.Enter(t.Context(), permit("x", mostPermits+1))
	require.ErrorContains(t, err, "want 1000 or fewer")
}

func TestInspectShowsPermits(t *testing.T) {
	t.Parallel()
	b := linked(t, startFor(t, 3, time.Minute))
	l, _, err := b.Enter(t.Context(), permit("holder", 1))
	require.NoError(t, err)
	_, p, err := b.Enter(t.Context(), permit("waiter", 1))
	require.NoError(t, err)
	found := inspected(t, b, "k")
	require.Len(t, found.Holders, 1)
	require.Equal(t, distributed.Shared, found.Mode)
	require.Len(t, found.Waiters, 1)
	require.Equal(t, distributed.Shared, found.Waiters[0].Mode)
	require.Equal(t, 1, found.Waiters[0].Limit)
	require.NoError(t, p.Leave(t.Context()))
	require.NoError(t, l.Release(t.Context()))
}
