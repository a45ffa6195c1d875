package redislock

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
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
			inTime(t, "Enter", 200*time.Millisecond, func() {
				require.ErrorIs(t, u.fails(within(t, 200*time.Millisecond), key(t)), distributed.ErrUnavailable)
			})
			inTime(t, "Enter without a deadline", firstBudget, func() {
				require.ErrorIs(t, u.fails(t.Context(), key(t)), distributed.ErrUnavailable)
			})
			require.ErrorIs(t, u.b.Ping(within(t, 100*time.Millisecond)), distributed.ErrUnavailable)
			inTime(t, "Close", closeGrace, func() { require.NoError(t, u.b.Close()) })
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
			l, p, err := u.enter(within(t, time.Second), key(t))
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
	inTimeSince(t, start, "both served after a failover", time.Since(start), 5*time.Second)
	turn(a)
	turn(b)
}

func TestBusyScriptPasses(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	s.Do("CONFIG", "SET", "busy-reply-threshold", "10")
	u := newUser(t, b).lasting(5 * time.Second)
	release(t, u.lease(key(t)))
	endless := make(chan error, 1)
	go func() { endless <- s.Client().Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(t, func() bool {
		return redis.HasErrorPrefix(s.Client().Ping(t.Context()).Err(), "BUSY")
	}, patience, 5*time.Millisecond)
	require.ErrorIs(t, u.fails(within(t, 100*time.Millisecond), key(t)), distributed.ErrUnavailable)
	time.AfterFunc(200*time.Millisecond, func() { _ = s.Client().ScriptKill(context.Background()).Err() })
	release(t, u.get(key(t))) // waits for the end of it
	require.Error(t, <-endless)
}

// go-redis' pool answered with its last error once as many dials had failed as it has places, and dialed once a second: a
// server that was back was not found before.
func TestAServerThatIsBackIsDialedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var away atomic.Bool
	away.Store(true)
	b := with(t, s.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if away.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}))
	for range 10 * conn.MaxSlots {
		require.ErrorIs(t, b.Echo(t.Context()), distributed.ErrUnreached)
	}
	away.Store(false)
	require.NoError(t, b.Echo(t.Context()))
}

// torn is a connection that is reset in the middle of the next reply.
type torn struct {
	net.Conn
	next *atomic.Bool
	half bool
}

func (c *torn) Read(b []byte) (int, error) {
	if c.half {
		return 0, syscall.ECONNRESET
	}
	n, err := c.Conn.Read(b)
	if n > 1 && c.next.CompareAndSwap(true, false) {
		c.half = true
		return n / 2, nil
	}
	return n, err
}

// What was carried out and answered by half has one effect when it is asked again: one lease, one place, one release.
func TestAReplyThatIsTornIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var next atomic.Bool
	b := with(t, s.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &torn{Conn: c, next: &next}, err
		}
	}))
	u := newUser(t, b).lasting(patience)
	release(t, u.lease(key(t)))
	tear := func(do func()) {
		next.Store(true)
		do()
		require.False(t, next.Load(), "a reply was torn")
	}
	var l distributed.Lease
	var p distributed.Place
	tear(func() { l = u.lease(key(t)) })
	before := fence(t, l)
	tear(func() { p = u.other().place(key(t)) })
	tear(func() { release(t, l) })
	l = granted(t, p)
	require.Greater(t, fence(t, l), before)
	release(t, l)
	release(t, u.lease(key(t), noWait)) // nothing is left
}
