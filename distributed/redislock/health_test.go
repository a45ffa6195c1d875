package redislock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

var _ distributed.Observable = (*Backend)(nil)

// observer keeps what was observed.
type observer struct {
	mu  sync.Mutex
	all []distributed.Exchange
}

func observe(b *Backend) *observer {
	o := new(observer)
	b.Observe(func(e distributed.Exchange) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, e)
	})
	return o
}

// take returns what was observed since the last time.
func (o *observer) take() []distributed.Exchange {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// await waits for an exchange that is as wanted.
func (o *observer) await(t *testing.T, what string, want func(distributed.Exchange) bool) distributed.Exchange {
	t.Helper()
	var found distributed.Exchange
	require.Eventually(t, func() bool {
		for _, e := range o.take() {
			if want(e) {
				found = e
				return true
			}
		}
		return false
	}, patience, time.Millisecond, what)
	return found
}

func isAnswered(e distributed.Exchange) bool { return e.Err == nil && e.RTT > 0 }

func TestEveryExchangeIsObserved(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr, WithSystem("test"))
	require.NoError(t, b.Ping(t.Context()))
	o := observe(b)
	u, other := newUser(t, b), newUser(t, b)
	begin := time.Now()
	one := func(what string, f func()) {
		t.Helper()
		_ = o.take()
		f()
		all := o.take()
		require.Len(t, all, 1, what)
		require.True(t, isAnswered(all[0]), "%s: %+v", what, all[0])
		require.WithinRange(t, all[0].Sent, begin, time.Now().Add(-all[0].RTT))
	}
	var l *lease
	var p distributed.Place
	one("enter", func() { l = u.lasting(time.Minute).lease(key(t)) })
	one("refill", func() { require.NoError(t, l.Refill(t.Context())) })
	one("renewals, in one pipeline", func() { b.s.renewBatch(t.Context(), []*attempt{l.a, l.a, l.a}) })
	one("a place", func() { p = other.lasting(time.Minute).place(key(t)) })
	one("heartbeats, in one pipeline", func() { l.a.Wire.node.sendBatch(t.Context(), []*attempt{attemptBehind(p), attemptBehind(p)}) })
	one("leave", func() { require.NoError(t, p.Leave(t.Context())) })
	one("release", func() { release(t, l) })
	one("echo", func() { require.NoError(t, b.Echo(t.Context())) })
	require.NoError(t, b.Ping(t.Context()))
	require.NotEmpty(t, o.take(), "a probe")
	release(t, newUser(t, b).lease(key(t)))
	o.await(t, "release in the background", isAnswered)

	told := 0
	stop := b.Observe(func(distributed.Exchange) { told++ })
	require.NoError(t, b.Echo(t.Context()))
	stop()
	stop()
	require.NoError(t, b.Echo(t.Context()))
	require.Equal(t, 1, told, "an observer can stop")
}

// TestRefusalsAreAnswers: each is ErrRefused with the server's words, for the observers and for those who asked, and an
// Echo is content with it.
func TestRefusalsAreAnswers(t *testing.T) {
	t.Parallel()
	for says, refuse := range map[string]func(s *redistest.Server){
		"NOPERM":   func(s *redistest.Server) { s.Do("ACL", "SETUSER", "shop", "-evalsha") },
		"OOM":      func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		"READONLY": func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
		"WRONGPASS": func(s *redistest.Server) {
			s.Do("ACL", "SETUSER", "shop", "resetpass", ">another-secret")
			s.Do("CLIENT", "KILL", "USER", "shop")
		},
		"NOREPLICAS": func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
		"MISCONF":    func(s *redistest.Server) { failSnapshot(t, s) },
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--enable-protected-configs", "yes", "--save", "3600 1000000")
			b := asUser(t, s)
			u := newUser(t, b)
			l := u.lasting(time.Minute).lease("shop:product:1")
			o := observe(b)
			refuse(s)
			var err error
			require.Eventually(t, func() bool { // a busy machine may not connect in time
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, _, err = u.enter(ctx, "shop:product:2")
				return errors.Is(err, distributed.ErrRefused)
			}, patience, time.Millisecond)
			errs := []error{err, o.await(t, says, func(e distributed.Exchange) bool { return e.RTT > 0 && errors.Is(e.Err, distributed.ErrRefused) }).Err}
			if says != "OOM" { // which a refill is spared
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				errs = append(errs, l.Refill(ctx))
			}
			for _, err := range errs {
				require.ErrorIs(t, err, distributed.ErrRefused)
				require.ErrorIs(t, err, distributed.ErrUnavailable)
				require.NotErrorIs(t, err, distributed.ErrUnreached)
				require.ErrorContains(t, err, says)
				require.NotContains(t, err.Error(), "secret")
			}
			require.NoError(t, b.Echo(t.Context()))
		})
	}
}

// TestARefusedDialIsObservedAtOnce: it once came back when the budget of the Enter, half a TTL, had been spent on repeats.
func TestARefusedDialIsObservedAtOnce(t *testing.T) {
	testscope.Long(t, "takes 2 s")
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u := newUser(t, b).lasting(time.Minute)
	l := u.lease(key(t))
	s.Kill()
	o := observe(b)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	start := time.Now()
	go func() {
		_, _, err := u.enter(ctx, key(t)+"b")
		failed <- err
	}()
	unreached := func(e distributed.Exchange) bool { return errors.Is(e.Err, distributed.ErrUnreached) }
	for range 3 {
		e := o.await(t, "a refused dial", unreached)
		require.ErrorIs(t, e.Err, distributed.ErrUnavailable)
		require.Zero(t, e.RTT)
	}
	inTime(t, "three refused dials", time.Since(start), 100*time.Millisecond)
	require.Empty(t, failed, "the Enter goes on: the server may be back soon")
	start = time.Now()
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	inTime(t, "called off", time.Since(start)+slack/2, 0)

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := u.enter(ctx, key(t)+"b")
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, err := range []error{err, l.Refill(ctx), b.Echo(t.Context())} {
		require.ErrorIs(t, err, distributed.ErrUnreached)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.NotErrorIs(t, err, distributed.ErrRefused)
	}
}

// TestEchoOfAClusterAsksAnotherNodeEachTime: with one that hangs, the second finds one that answers.
func TestEchoOfAClusterAsksAnotherNodeEachTime(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	h := startHanging(t)
	b := byURL(t, "redis+cluster://"+strings.Join(h.Addrs(), ","))
	require.NoError(t, b.Echo(t.Context()))
	h.node.Pause()
	defer h.node.Resume()
	answered := 0
	for range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if b.Echo(ctx) == nil {
			answered++
		}
		cancel()
	}
	require.GreaterOrEqual(t, answered, 4)
}

// TestPingSeesAServerThatOnlyReads: also before the backend knows a system whose keys it could try.
func TestPingSeesAServerThatOnlyReads(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	ping := func() error { // which would ask for seconds whether it is over
		ctx, cancel := context.WithTimeout(t.Context(), testTTL/2)
		defer cancel()
		return b.Ping(ctx)
	}
	require.NoError(t, b.Ping(t.Context()))
	s.Do("REPLICAOF", "127.0.0.1", "1")
	err := ping()
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "READONLY")
	s.Do("REPLICAOF", "NO", "ONE")
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, patience, time.Millisecond)
	s.Do("CLIENT", "PAUSE", patience.Milliseconds(), "WRITE")
	require.ErrorIs(t, ping(), distributed.ErrUnavailable)
	s.Do("CLIENT", "UNPAUSE")
}
