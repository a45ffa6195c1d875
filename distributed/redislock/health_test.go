package redislock

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

var (
	_ distributed.Observable  = (*Backend)(nil)
	_ distributed.TTLRegistry = (*Backend)(nil)
)

// observed is what was, and nobody has looked at.
type observed chan distributed.Exchange

func observe(b *Backend) observed {
	o := make(observed, 10_000) // more than a test makes
	b.Observe(func(e distributed.Exchange) { o <- e })
	return o
}

// take returns what was observed since the last time.
func (o observed) take() (all []distributed.Exchange) {
	for len(o) > 0 {
		all = append(all, <-o)
	}
	return all
}

// await waits for an exchange that is as wanted.
func (o observed) await(t *testing.T, what string, want func(distributed.Exchange) bool) distributed.Exchange {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case e := <-o:
			if want(e) {
				return e
			}
		case <-end:
			require.Fail(t, what+" was not observed")
		}
	}
}

func isAnswered(e distributed.Exchange) bool { return e.Err == nil && e.RTT > 0 }

func TestEveryExchangeIsObserved(t *testing.T) {
	t.Parallel()
	_, b := openNew(t, WithSystem("test"))
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
			b := openFor(t, s, "shop")
			u := newUser(t, b)
			l := u.lasting(time.Minute).lease("shop:product:1")
			o := observe(b)
			refuse(s)
			var err error
			require.Eventually(t, func() bool { // a busy machine may not connect in time
				err = u.fails(within(t, 3*time.Second), "shop:product:2")
				return errors.Is(err, distributed.ErrRefused)
			}, patience, time.Millisecond)
			errs := []error{err, o.await(t, says, func(e distributed.Exchange) bool { return e.RTT > 0 && errors.Is(e.Err, distributed.ErrRefused) }).Err}
			if says != "OOM" { // which a refill is spared
				errs = append(errs, l.Refill(within(t, time.Second)))
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
	s, b := openNew(t)
	u := newUser(t, b).lasting(time.Minute)
	l := u.lease(key(t))
	s.Kill()
	o := observe(b)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	start := time.Now()
	go func() { failed <- u.fails(ctx, key(t)+"b") }()
	unreached := func(e distributed.Exchange) bool { return errors.Is(e.Err, distributed.ErrUnreached) }
	for range 3 {
		e := o.await(t, "a refused dial", unreached)
		require.ErrorIs(t, e.Err, distributed.ErrUnavailable)
		require.Zero(t, e.RTT)
	}
	inTimeSince(t, start, "three refused dials", time.Since(start), 100*time.Millisecond)
	require.Empty(t, failed, "the Enter goes on: the server may be back soon")
	cancel()
	inTime(t, "called off", -slack/2, func() { require.ErrorIs(t, <-failed, context.Canceled) })

	for _, err := range []error{
		u.fails(within(t, 50*time.Millisecond), key(t)+"b"), l.Refill(within(t, 50*time.Millisecond)), b.Echo(t.Context()),
	} {
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
	b := byURL(t, h.url())
	require.NoError(t, b.Echo(t.Context()))
	h.node.Pause()
	defer h.node.Resume()
	answered := 0
	for range 8 {
		if b.Echo(within(t, 100*time.Millisecond)) == nil {
			answered++
		}
	}
	require.GreaterOrEqual(t, answered, 4)
}

// TestPingSeesAServerThatOnlyReads: also before the backend knows a system whose keys it could try.
func TestPingSeesAServerThatOnlyReads(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	ping := func() error { return b.Ping(within(t, testTTL/2)) } // which would ask for seconds whether it is over
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

// TestLongestTTL: each instance learns the longest of its system, before anybody has entered.
func TestLongestTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := openFor(t, s, "shop"), openFor(t, s, "shop")
	longest := func(b *Backend, system string, own time.Duration) time.Duration {
		t.Helper()
		d, err := b.LongestTTL(t.Context(), system, own)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, time.Second, longest(one, "shop", time.Second))
	require.Equal(t, 10*time.Second, longest(other, "shop", 10*time.Second))
	for range 2 {
		require.Equal(t, 10*time.Second, longest(one, "shop", time.Second), "a repeat changes nothing")
	}
	require.Equal(t, time.Second, longest(open(t, s.Addr), "mail", time.Second), "another system")
	require.InDelta(t, ttlMemory.Milliseconds(), s.Do("PTTL", "wllock:shop:ttl"), 5000)
	require.Equal(t, int64(2), s.Do("ZCARD", "wllock:shop:ttl"))

	s.Do("ZADD", "wllock:shop:ttl", time.Now().UnixMilli()-1, "10000")
	require.Equal(t, time.Second, longest(one, "shop", 1500*time.Microsecond), "the longest was forgotten")
	require.Equal(t, time.Hour, longest(other, "shop", time.Hour))
	require.Equal(t, time.Hour, longest(one, "shop", time.Second))
	require.InDelta(t, (2 * time.Hour).Milliseconds(), s.Do("PTTL", "wllock:shop:ttl"), 5000, "as long as its leases can last")
	require.Equal(t, time.Duration(math.MaxInt64), longest(one, "shop", math.MaxInt64))
	require.Empty(t, s.Do("ACL", "LOG"))
}

func TestLongestTTLWithoutAServer(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	s.Kill()
	_, err := b.LongestTTL(within(t, 50*time.Millisecond), "shop", time.Second)
	require.ErrorIs(t, err, distributed.ErrUnreached)
	require.NoError(t, b.Close())
	_, err = b.LongestTTL(t.Context(), "shop", time.Second)
	require.ErrorIs(t, err, distributed.ErrClosed)
	require.ErrorIs(t, b.Echo(t.Context()), distributed.ErrClosed)
}
