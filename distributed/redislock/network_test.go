package redislock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// TestALostReplyHasOneEffect swallows the reply of each step in turn: the step succeeds, and the next request finds
// that it was done once.
func TestALostReplyHasOneEffect(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	steps := map[string]func(t *testing.T, p *redistest.Proxy, far, near user){
		"enter that gets a lease": func(t *testing.T, p *redistest.Proxy, far, near user) {
			p.SwallowReply(enterScript.SHA)
			l := far.lease(key(t))
			last := fence(t, l)
			release(t, l)
			next := near.lease(key(t), noWait)
			require.Greater(t, fence(t, next), last)
			release(t, next)
		},
		"enter that gets a place": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := near.lease(key(t))
			p.SwallowReply(enterScript.SHA)
			place := far.place(key(t))
			require.Equal(t, int64(1), queueLength(s, key(t)))
			release(t, l)
			release(t, granted(t, place))
		},
		"enter with prev": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := far.lease(key(t))
			place := near.place(key(t))
			p.SwallowReply(enterScript.SHA)
			own := far.place(key(t), func(r *distributed.Request) { r.Prev = l })
			release(t, granted(t, place))
			release(t, granted(t, own))
		},
		"heartbeat": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := near.lease(key(t))
			place := far.place(key(t))
			p.SwallowReply(heartbeatScript.SHA)
			require.Eventually(t, func() bool { return p.Swallowed() == 1 }, patience, time.Millisecond)
			release(t, l)
			release(t, granted(t, place))
		},
		"claim": func(t *testing.T, p *redistest.Proxy, far, near user) {
			p.SwallowReply(renewScript.SHA)
			l := far.lease(key(t))
			claimed := l.Until()
			require.Eventually(t, func() bool { return l.Until().After(claimed) }, patience, time.Millisecond)
			release(t, l)
		},
		"refill": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := far.lease(key(t))
			last := fence(t, l)
			p.SwallowReply(refillScript.SHA)
			require.NoError(t, l.Refill(t.Context()))
			for range 2 * firstBlock {
				n := fence(t, l)
				require.Greater(t, n, last)
				last = n
			}
			release(t, l)
		},
		"release": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := far.lease(key(t))
			place, last := near.place(key(t)), newUser(t, near.b).place(key(t))
			p.SwallowReply(leaveScript.SHA)
			release(t, l)
			l2 := granted(t, place)
			time.Sleep(50 * time.Millisecond)
			require.Empty(t, last.Granted(), "a release that was repeated has released another's lease")
			release(t, l2)
			release(t, granted(t, last))
		},
		"leave": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := near.lease(key(t))
			place := far.place(key(t))
			p.SwallowReply(leaveScript.SHA)
			require.NoError(t, place.Leave(t.Context()))
			require.Zero(t, queueLength(s, key(t)))
			release(t, l)
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr)
			far, near := newUser(t, open(t, p.Addr)), newUser(t, open(t, s.Addr))
			require.NoError(t, far.b.Ping(t.Context()))
			for _, sc := range allScripts { // loaded, so that the first EVALSHA is the step
				s.Do("SCRIPT", "LOAD", sc.Text)
			}
			step(t, p, far, near)
			require.Equal(t, 1, p.Swallowed())
		})
	}
}

// TestEnterAgainstCloseIsClosed: it was taken for an Enter of another user of the instance's name.
func TestEnterAgainstCloseIsClosed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for range 20 { // Close may be anywhere when the answer comes
		b := open(t, s.Addr)
		require.NoError(t, b.Ping(t.Context()))
		x := &besideClose{b.s.tr, b, make(chan struct{})}
		b.s.tr = x
		closed := make(chan error)
		go func() {
			<-x.entering
			closed <- b.Close()
		}()
		_, _, err := newUser(t, b).enter(t.Context(), key(t))
		require.ErrorIs(t, err, distributed.ErrClosed)
		require.NoError(t, <-closed)
	}
	release(t, newUser(t, open(t, s.Addr)).lease(key(t), noWait))
}

// TestOwnReleaseNeverHoldsUp: release in the background, enter at once, in any order on the wire.
func TestOwnReleaseNeverHoldsUp(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	for k := range 100 {
		name := key(t) + ":" + string(rune('a'+k%26)) + string(rune('a'+k/26))
		l := u.lease(name)
		for range 3 {
			l.StartRelease()
			l = u.lease(name, func(r *distributed.Request) { r.Prev = l })
		}
		l.StartRelease()
	}
}

func TestCancelLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	u := newUser(t, open(t, p.Addr)).lasting(5 * testTTL) // a ghost would last for 1.5 s
	release(t, u.lease(key(t)))
	p.SwallowReply(enterScript.SHA)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, _, err := u.enter(ctx, key(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	inTime(t, "returned", time.Since(start), 50*time.Millisecond)
	l := newUser(t, open(t, s.Addr)).get(key(t))
	inTime(t, "free again", time.Since(start), 70*time.Millisecond)
	release(t, l)
}

// A claim that runs but whose replies are lost until T leaves a ghost for a further T.
type lostClaims struct {
	conn.Transport
	until time.Time
	slow  atomic.Pointer[Backend] // to which the network seems so
}

func (d *lostClaims) Do(ctx context.Context, calls ...*conn.Call) {
	d.Transport.Do(ctx, calls...)
	if b := d.slow.Load(); b != nil {
		b.s.rtt.Store(int64(testTTL))
	}
	for _, c := range calls {
		if c.Script == renewScript && time.Now().Before(d.until) {
			c.Reply, c.Err = "", context.DeadlineExceeded
		}
	}
}

// A claim of a late grant that gets no reply: the place is lost, and its lease is released.
func TestUnansweredClaimLeavesNoLongGhost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	d := &lostClaims{until: time.Now().Add(time.Hour)}
	swapTransport(b, func(tr conn.Transport) conn.Transport { d.Transport = tr; return d })
	holder := newUser(t, open(t, s.Addr))
	l := holder.lease(key(t))
	u := newUser(t, b)
	p := u.place(key(t))
	d.slow.Store(b) // so the grant counts as late
	b.s.rtt.Store(int64(testTTL))
	release(t, l)
	_, ok := <-p.Granted()
	require.False(t, ok)
	start := time.Now()
	release(t, holder.get(key(t)))
	inTime(t, "ghost of a claim", time.Since(start), distributed.ClaimWindow(testTTL))
}

// TestUnreadGrantIsHealthyWhenRead: it is not claimed until it is read, which is no failure.
func TestUnreadGrantIsHealthyWhenRead(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr)).lasting(3 * time.Second)
	l := u.lease(key(t))
	p := newUser(t, u.b).lasting(3 * time.Second).place(key(t))
	release(t, l)
	time.Sleep(600 * time.Millisecond) // W is 1.5 s, the claim is due at 0.5 s
	l2 := granted(t, p)
	require.True(t, l2.Healthy())
	until := l2.Until()
	require.Eventually(t, func() bool { return l2.Until().After(until) }, patience, time.Millisecond, "and soon after")
	release(t, l2)
}

// punctual notes by how much an exchange exceeded its deadline.
type punctual struct {
	conn.Transport
	late atomic.Int64
}

func (p *punctual) Do(ctx context.Context, calls ...*conn.Call) {
	by, _ := ctx.Deadline()
	p.Transport.Do(ctx, calls...)
	for late := int64(time.Since(by)); ; {
		old := p.late.Load()
		if late <= old || p.late.CompareAndSwap(old, late) {
			return
		}
	}
}

// TestSmallPoolHoldsNobodyUp: an exchange that finds no connection waits for one past its deadline, so there must be one for
// all that can be under way, whatever the application's client has. The default of go-redis is 10 per processor.
func TestSmallPoolHoldsNobodyUp(t *testing.T) {
	testscope.Long(t, "takes 2 s")
	t.Parallel()
	s := redistest.Start(t)
	b, err := New(s.Client(func(o *redis.Options) { o.PoolSize = conn.MaxSlots }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	exchanges := &punctual{}
	swapTransport(b, func(tr conn.Transport) conn.Transport { exchanges.Transport = tr; return exchanges })
	patient := newUser(t, b).lasting(conn.LongestTry * 6) // H is a second
	patient.lease(key(t))
	for range 4 * conn.MaxSlots { // whose heartbeats are due together now and then, and then need a connection of their own
		newUser(t, b).place(key(t)) // H is 100 ms
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 2*conn.LongestTry)
	defer cancel()
	var wg sync.WaitGroup
	for i := range conn.MaxSlots {
		wg.Go(func() { _, _, _ = patient.enter(ctx, fmt.Sprint(key(t), i)) })
	}
	wg.Wait()
	inTime(t, "past a deadline", time.Duration(exchanges.late.Load()), 0)
	s.Resume()
}

// A readiness check says so where the network is too slow for the TTL: no lock would be granted.
func TestPingOverANetworkTooSlowForTheTTL(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr)
	p.SetDelay(60 * time.Millisecond) // each way
	b := open(t, p.Addr)
	for ttl, want := range map[time.Duration]string{300 * time.Millisecond: "is too short for round trips of", 10 * time.Second: ""} {
		l, err := wllock.New("shop", b, wllock.WithLeaseTTL(ttl))
		require.NoError(t, err)
		if err = l.Ping(t.Context()); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, wllock.ErrUnavailable)
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, l.Close(t.Context()))
	}
}

// go-redis' pool answered with its last error once as many dials had failed as it has places, and dialed once a second: a
// server that was back was not found before.
func TestAServerThatIsBackIsDialedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var away atomic.Bool
	away.Store(true)
	b, err := New(s.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if away.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	for range 10 * conn.MaxSlots {
		require.ErrorIs(t, b.Echo(t.Context()), distributed.ErrUnreached)
	}
	away.Store(false)
	require.NoError(t, b.Echo(t.Context()))
}
