package redislock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
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

func TestWithoutMessagesHeartbeatsFindTheGrant(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	p.SetSilent(true)
	near, far := newUser(t, open(t, s.Addr)), newUser(t, open(t, p.Addr))
	for range 3 {
		l := near.lease(key(t))
		place := far.place(key(t))
		release(t, l)
		start := time.Now()
		l2 := granted(t, place)
		inTime(t, "without messages", time.Since(start), distributed.HeartbeatInterval(testTTL))
		release(t, l2)
	}
}

func TestHalfOpenSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	b := open(t, p.Addr)
	counted := &listenCount{}
	swapTransport(b, func(tr conn.Transport) conn.Transport { return listening{tr, counted} })
	release(t, newUser(t, b).lease(key(t))) // brings the TTL, and with it the watchdog's interval
	require.Eventually(t, func() bool { return counted.subscribed.Load() == 1 }, patience, time.Millisecond)
	time.Sleep(distributed.HeartbeatInterval(testTTL)) // an interval that began before the TTL was known may be longer
	p.SetHalfOpen(true)
	start := time.Now()
	require.Eventually(t, func() bool { return counted.broken.Load() == 1 }, patience, time.Millisecond)
	inTime(t, "half-open subscription noticed", time.Since(start), 2*distributed.HeartbeatInterval(testTTL))
	p.SetHalfOpen(false)
	require.Eventually(t, func() bool { return counted.subscribed.Load() == 2 }, patience, time.Millisecond)
}

// listening counts what happens to the subscription.
type listening struct {
	conn.Transport
	count *listenCount
}

type listenCount struct{ subscribed, broken atomic.Int32 }

func (c listening) Listen(ctx context.Context, channel string, interval func() time.Duration, l conn.Listener) {
	c.Transport.Listen(ctx, channel, interval, countedListener{l, c.count})
}

type countedListener struct {
	conn.Listener
	count *listenCount
}

func (c countedListener) OnSubscribe()           { c.count.subscribed.Add(1); c.Listener.OnSubscribe() }
func (c countedListener) OnDisconnect(err error) { c.count.broken.Add(1); c.Listener.OnDisconnect(err) }

func TestKilledSubscriptionsLoseNoPlace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := newUser(t, open(t, s.Addr))
	var l distributed.Lease = holder.lease(key(t))
	var places []distributed.Place
	for range 10 {
		places = append(places, newUser(t, open(t, s.Addr)).place(key(t)))
	}
	for _, p := range places {
		s.Do("CLIENT", "KILL", "TYPE", "pubsub")
		release(t, l)
		start := time.Now()
		l = granted(t, p)
		inTime(t, "granted with all subscriptions killed", time.Since(start), distributed.HeartbeatInterval(testTTL))
	}
	release(t, l)
}

func TestAPushCanBeatItsReply(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	slow := open(t, s.Addr)
	queued := make(chan struct{})
	swapTransport(slow, func(tr conn.Transport) conn.Transport { return slowReplies{tr, queued} })
	holder, waiter := newUser(t, open(t, s.Addr)), newUser(t, slow)
	require.NoError(t, slow.Ping(t.Context()))
	l := holder.lease(key(t))
	go func() {
		<-queued
		_ = l.Release(context.Background())
	}()
	start := time.Now()
	p := waiter.place(key(t)) // the reply comes long after the grant
	l2 := granted(t, p)
	require.Less(t, time.Since(start), replyDelay+distributed.HeartbeatInterval(testTTL)/2, "found by the heartbeat, not the message")
	require.True(t, l2.Until().Before(start.Add(testTTL/2)), "its time counts from when enter was sent")
	release(t, l2)
}

const replyDelay = 60 * time.Millisecond

// slowReplies holds the replies of enter back.
type slowReplies struct {
	conn.Transport
	queued chan struct{}
}

func (s slowReplies) Do(ctx context.Context, calls ...*conn.Call) {
	s.Transport.Do(ctx, calls...)
	if calls[0].Script == enterScript {
		close(s.queued)
		time.Sleep(replyDelay)
	}
}

func TestAGhostCostsAtMostItsClaimWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	ghost := attemptOf(b, distributed.Request{Key: key(t), Instance: "ghost", TTL: testTTL}) // nobody registers it
	b.s.tr.Do(t.Context(), ghost.wire.enter(noPrev))
	p := newUser(t, b).place(key(t))
	start := time.Now()
	l := granted(t, p)
	inTime(t, "a ghost that got the lock", time.Since(start), distributed.ClaimWindow(testTTL))

	b.s.tr.Do(t.Context(), ghost.wire.enter(noPrev)) // and now it is queued
	require.Equal(t, int64(1), queueLength(s, key(t)))
	p = newUser(t, b).place(key(t))
	start = time.Now()
	release(t, l)
	l = granted(t, p)
	inTime(t, "a ghost that got a place: its grant is returned", time.Since(start), 0)
	release(t, l)
}

func TestAnEnterAfterItsLeaveChangesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	late := attemptOf(b, distributed.Request{Key: key(t), Instance: "late", TTL: testTTL})
	for _, c := range []*conn.Call{late.wire.leave(), late.wire.enter(noPrev)} {
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
	}
	release(t, newUser(t, b).lease(key(t), noWait))
}

// TestAnEnterAfterItsLeaveChangesNothingWhenALaterOneHasExpired: the leave finds a later attempt of its instance.
func TestAnEnterAfterItsLeaveChangesNothingWhenALaterOneHasExpired(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	req := distributed.Request{Key: key(t), Instance: "late", TTL: testTTL}
	late, later := attemptOf(b, req), attemptOf(b, req)
	ask := func(c *conn.Call) string {
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
		return answered(c)
	}
	ask(later.wire.enter(noPrev))
	require.Equal(t, "over", ask(late.wire.leave()))
	s.Do("DEL", key(t)) // as if it had expired
	require.Equal(t, string(outdated), ask(late.wire.enter(noPrev)))
	require.Equal(t, "over", ask(late.wire.leave()), "the first answer again")
}

// TestALateCopyDoesNotShortenAClaim: the network delivers an enter and a heartbeat once more, when the lease has been
// claimed already.
func TestALateCopyDoesNotShortenAClaim(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	for name, mode := range map[string]func(*distributed.Request){"exclusive": func(*distributed.Request) {}, "shared": shared} {
		u := newUser(t, b).lasting(10 * time.Second)
		l := u.lease(key(t)+name, mode)
		b.s.renewBatch([]*lease{l})
		require.Greater(t, time.Until(l.Until()), 9*time.Second)
		for _, c := range []*conn.Call{l.a.wire.enter(noPrev), l.a.wire.heartbeat()} {
			b.s.tr.Do(t.Context(), c)
			require.NoError(t, c.Err)
			require.Equal(t, "lease", answered(c), "the first answer again")
		}
		require.Greater(t, s.Do("PTTL", key(t)+name), int64(9000), name)
		if name == "shared" {
			score, _ := s.Do("ZSCORE", l.a.wire.args[conn.HeadLen+4], b.s.process+":"+fmt.Sprint(l.a.id)+":"+u.name).(float64)
			require.Greater(t, score, float64(time.Now().Add(9*time.Second).UnixMilli()))
		}
		release(t, l)
	}
}

func TestRepeatedRelease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u := newUser(t, b)
	l := u.lease(key(t))
	release(t, l)
	for range 2 { // the same again at the server, where it is known as done
		c := l.a.wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, l.outcome(c))
	}
	other := newUser(t, b).lease(key(t))
	c := l.a.wire.leave()
	b.s.tr.Do(t.Context(), c)
	require.NoError(t, l.outcome(c))
	require.NotNil(t, s.Do("GET", key(t)), "another's lock was touched")
	release(t, other)
}

// TestRepeatedReleaseOfALostLease: the answer to a release that found nothing is lost, and the same is asked again.
func TestRepeatedReleaseOfALostLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u := newUser(t, b)
	l := u.lease(key(t))
	s.Do("DEL", key(t))
	for range 3 {
		c := l.a.wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.ErrorIs(t, l.outcome(c), distributed.ErrLeaseLost)
	}
	c := attemptOf(b, distributed.Request{Key: key(t), Instance: u.name, TTL: testTTL}).wire.enter(l.asPrev())
	b.s.tr.Do(t.Context(), c)
	require.NoError(t, c.Err)
	require.Equal(t, "lost", answered(c), "and an enter that names it as prev")
	c = l.a.wire.enter(noPrev)
	b.s.tr.Do(t.Context(), c)
	require.NoError(t, c.Err)
	require.Equal(t, "old", answered(c), "but its own enter, coming late, changes nothing")
}

// TestRepeatedEnterReportsALostPrev: the answer to an enter that found nothing of the lease before is lost, and the same is
// asked again.
func TestRepeatedEnterReportsALostPrev(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	for name, r := range map[string]distributed.Request{
		"lease": {}, "reader": {Mode: distributed.Shared}, "place": {}, "held": {NoWait: true},
	} {
		u := newUser(t, b).lasting(5 * time.Second)
		l := u.lease(key(t))
		s.Do("DEL", key(t))
		var theirs *lease
		if name == "place" || name == "held" {
			theirs = newUser(t, b).lasting(5 * time.Second).lease(key(t))
		}
		r.Key, r.Instance, r.TTL = key(t), u.name, 5*time.Second
		a := attemptOf(b, r)
		for range 3 {
			c := a.wire.enter(l.asPrev())
			b.s.tr.Do(t.Context(), c)
			require.NoError(t, c.Err)
			require.Equal(t, "lost", answered(c), "%s: %s", name, c.Reply)
		}
		c := l.a.wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
		require.Equal(t, "lost", answered(c), "%s: and if no answer comes at all, its release reports it", name)
		c = a.wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
		if theirs != nil {
			release(t, theirs)
		}
	}
}

// crossing has the server see an enter before a leave that was sent first, and the leave's answer come first.
type crossing struct {
	conn.Transport
	leaving, entered, left chan struct{}
}

func (x *crossing) Do(ctx context.Context, calls ...*conn.Call) {
	switch calls[0].Script {
	case leaveScript:
		close(x.leaving)
		<-x.entered
		x.Transport.Do(ctx, calls...)
		time.AfterFunc(20*time.Millisecond, func() { close(x.left) })
	case enterScript:
		x.Transport.Do(ctx, calls...)
		close(x.entered)
		<-x.left
	default:
		x.Transport.Do(ctx, calls...)
	}
}

// TestReleaseThatAnEnterOvertakes: the enter knows what became of the lease, also if its reply is the later one.
func TestReleaseThatAnEnterOvertakes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, want := range map[string]error{"held": nil, "lost": distributed.ErrLeaseLost} {
		b := open(t, s.Addr)
		u := newUser(t, b).lasting(5 * time.Second)
		l := u.lease(key(t))
		if want != nil {
			s.Do("DEL", key(t))
		}
		straight := b.s.tr
		x := &crossing{straight, make(chan struct{}), make(chan struct{}), make(chan struct{})}
		b.s.tr = x
		answer := make(chan error)
		go func() { answer <- l.Release(t.Context()) }()
		<-x.leaving
		next := u.lease(key(t), func(r *distributed.Request) { r.Prev = l })
		require.ErrorIs(t, <-answer, want, name)
		b.s.tr = straight
		release(t, next)
	}
}

// afterItsLeave has the server see an enter when the attempt has been left.
type afterItsLeave struct {
	conn.Transport
	entering, left chan struct{}
}

func (x *afterItsLeave) Do(ctx context.Context, calls ...*conn.Call) {
	if calls[0].Script == enterScript {
		close(x.entering)
		<-x.left
	}
	x.Transport.Do(ctx, calls...)
	if calls[0].Script == leaveScript {
		close(x.left)
	}
}

// TestEnterAgainstCloseIsClosed: it was taken for an Enter of another user of the instance's name.
func TestEnterAgainstCloseIsClosed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for range 20 { // Close may be anywhere when the answer comes
		b := open(t, s.Addr)
		require.NoError(t, b.Ping(t.Context()))
		x := &afterItsLeave{b.s.tr, make(chan struct{}), make(chan struct{})}
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
	u := newUser(t, open(t, p.Addr))
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
}

func (d *lostClaims) Do(ctx context.Context, calls ...*conn.Call) {
	d.Transport.Do(ctx, calls...)
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
	p := u.place(key(t)).(place)
	p.a.mu.Lock()
	p.a.since = time.Now().Add(-testTTL / 2) // as after a stall: the grant counts as late
	p.a.mu.Unlock()
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
