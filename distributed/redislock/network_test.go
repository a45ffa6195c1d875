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
	"github.com/wllock/wllock/internal/redistest"
)

// TestALostReplyHasOneEffect swallows the reply of each step in turn: the step succeeds, and the next who asks finds
// that it was done once.
func TestALostReplyHasOneEffect(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	steps := map[string]func(t *testing.T, p *redistest.Proxy, far, near user){
		"enter that gets a lease": func(t *testing.T, p *redistest.Proxy, far, near user) {
			p.SwallowReply(enterScript.sha)
			l := far.lease(key(t))
			last := fence(t, l)
			release(t, l)
			next := near.lease(key(t), noWait)
			require.Greater(t, fence(t, next), last)
			release(t, next)
		},
		"enter that gets a place": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := near.lease(key(t))
			p.SwallowReply(enterScript.sha)
			place := far.place(key(t))
			require.Equal(t, int64(1), queueLength(s, key(t)))
			release(t, l)
			release(t, granted(t, place))
		},
		"enter with prev": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := far.lease(key(t))
			place := near.place(key(t))
			p.SwallowReply(enterScript.sha)
			own := far.place(key(t), func(r *distributed.Request) { r.Prev = l })
			release(t, granted(t, place))
			release(t, granted(t, own))
		},
		"heartbeat": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := near.lease(key(t))
			place := far.place(key(t))
			p.SwallowReply(beatScript.sha)
			require.Eventually(t, func() bool { return p.Swallowed() == 1 }, patience, time.Millisecond)
			release(t, l)
			release(t, granted(t, place))
		},
		"claim": func(t *testing.T, p *redistest.Proxy, far, near user) {
			p.SwallowReply(renewScript.sha)
			l := far.lease(key(t))
			claimed := l.Until()
			require.Eventually(t, func() bool { return l.Until().After(claimed) }, patience, time.Millisecond)
			release(t, l)
		},
		"refill": func(t *testing.T, p *redistest.Proxy, far, near user) {
			l := far.lease(key(t))
			last := fence(t, l)
			p.SwallowReply(refillScript.sha)
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
			p.SwallowReply(leaveScript.sha)
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
			p.SwallowReply(leaveScript.sha)
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
				s.Do("SCRIPT", "LOAD", sc.text)
			}
			step(t, p, far, near)
			require.Equal(t, 1, p.Swallowed())
		})
	}
}

func TestWithoutNoticesHeartbeatsFindTheGrant(t *testing.T) {
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
		inTime(t, "without notices", time.Since(start), distributed.HeartbeatInterval(testTTL))
		release(t, l2)
	}
}

func TestHalfOpenSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	b := open(t, p.Addr)
	counted := &earCount{}
	swapTransport(b, func(tr transport) transport { return listening{tr, counted} })
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
	transport
	count *earCount
}

type earCount struct{ subscribed, broken atomic.Int32 }

func (l listening) listen(ctx context.Context, channel string, interval func() time.Duration, e ears) {
	l.transport.listen(ctx, channel, interval, countedEars{e, l.count})
}

type countedEars struct {
	ears
	count *earCount
}

func (c countedEars) subscribed()        { c.count.subscribed.Add(1); c.ears.subscribed() }
func (c countedEars) deafened(err error) { c.count.broken.Add(1); c.ears.deafened(err) }

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
	swapTransport(slow, func(tr transport) transport { return slowReplies{tr, queued} })
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
	require.Less(t, time.Since(start), replyDelay+distributed.HeartbeatInterval(testTTL)/2, "found by the heartbeat, not the notice")
	require.True(t, l2.Until().Before(start.Add(testTTL/2)), "its time counts from when enter was sent")
	release(t, l2)
}

const replyDelay = 60 * time.Millisecond

// slowReplies holds the replies of enter back.
type slowReplies struct {
	transport
	queued chan struct{}
}

func (s slowReplies) do(ctx context.Context, calls ...*call) {
	s.transport.do(ctx, calls...)
	if calls[0].script == enterScript {
		close(s.queued)
		time.Sleep(replyDelay)
	}
}

func TestAGhostCostsAtMostItsClaimWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	ghost := newAttempt(b, distributed.Request{Key: key(t), Instance: "ghost", TTL: testTTL}) // nobody registers it
	b.tr.do(t.Context(), ghost.entering(nil))
	p := newUser(t, b).place(key(t))
	start := time.Now()
	l := granted(t, p)
	inTime(t, "a ghost that got the lock", time.Since(start), distributed.ClaimWindow(testTTL))

	b.tr.do(t.Context(), ghost.entering(nil)) // and now it is queued
	require.Equal(t, int64(1), queueLength(s, key(t)))
	p = newUser(t, b).place(key(t))
	start = time.Now()
	release(t, l)
	l = granted(t, p)
	inTime(t, "a ghost that got a place: its grant is given back", time.Since(start), 0)
	release(t, l)
}

func TestAnEnterAfterItsLeaveChangesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	late := newAttempt(b, distributed.Request{Key: key(t), Instance: "late", TTL: testTTL})
	for _, c := range []*call{late.leaving(), late.entering(nil)} {
		b.tr.do(t.Context(), c)
		require.NoError(t, c.err)
	}
	release(t, newUser(t, b).lease(key(t), noWait))
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
		b.renewBatch(t.Context(), []*lease{l})
		require.Greater(t, time.Until(l.Until()), 9*time.Second)
		for _, c := range []*call{l.a.entering(nil), l.a.call(beatScript)} {
			b.tr.do(t.Context(), c)
			require.NoError(t, c.err)
			require.Equal(t, "lease", c.word(0), "the first answer again")
		}
		require.Greater(t, s.Do("PTTL", key(t)+name), int64(9000), name)
		if name == "shared" {
			score, _ := s.Do("ZSCORE", l.a.wire[wireHead+4], b.process+":"+fmt.Sprint(l.a.id)+":"+u.name).(float64)
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
		c := l.a.leaving()
		b.tr.do(t.Context(), c)
		require.NoError(t, l.outcome(c))
	}
	other := newUser(t, b).lease(key(t))
	c := l.a.leaving()
	b.tr.do(t.Context(), c)
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
		c := l.a.leaving()
		b.tr.do(t.Context(), c)
		require.ErrorIs(t, l.outcome(c), distributed.ErrLeaseLost)
	}
	c := newAttempt(b, distributed.Request{Key: key(t), Instance: u.name, TTL: testTTL}).entering(l)
	b.tr.do(t.Context(), c)
	require.NoError(t, c.err)
	require.Equal(t, "lost", c.word(0), "and an enter that names it as prev")
	c = l.a.entering(nil)
	b.tr.do(t.Context(), c)
	require.NoError(t, c.err)
	require.Equal(t, oldAnswer, c.word(0), "but its own enter, coming late, changes nothing")
}

// TestRepeatedEnterTellsOfALostPrev: the answer to an enter that found nothing of the lease before is lost, and the same is
// asked again.
func TestRepeatedEnterTellsOfALostPrev(t *testing.T) {
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
		a := newAttempt(b, r)
		for range 3 {
			c := a.entering(l)
			b.tr.do(t.Context(), c)
			require.NoError(t, c.err)
			require.Equal(t, "lost", c.word(0), "%s: %s", name, c.reply)
		}
		c := l.a.leaving()
		b.tr.do(t.Context(), c)
		require.NoError(t, c.err)
		require.Equal(t, "lost", c.word(0), "%s: and if no answer comes at all, its release tells it", name)
		c = a.leaving()
		b.tr.do(t.Context(), c)
		require.NoError(t, c.err)
		if theirs != nil {
			release(t, theirs)
		}
	}
}

// crossing has the server see an enter before a leave that was sent first, and the leave's answer come first.
type crossing struct {
	transport
	leaving, entered, left chan struct{}
}

func (x *crossing) do(ctx context.Context, calls ...*call) {
	switch calls[0].script {
	case leaveScript:
		close(x.leaving)
		<-x.entered
		x.transport.do(ctx, calls...)
		time.AfterFunc(20*time.Millisecond, func() { close(x.left) })
	case enterScript:
		x.transport.do(ctx, calls...)
		close(x.entered)
		<-x.left
	default:
		x.transport.do(ctx, calls...)
	}
}

// TestReleaseThatAnEnterOvertakes: what became of the lease is known to the enter, be its answer the later one.
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
		straight := b.tr
		x := &crossing{straight, make(chan struct{}), make(chan struct{}), make(chan struct{})}
		b.tr = x
		answer := make(chan error)
		go func() { answer <- l.Release(t.Context()) }()
		<-x.leaving
		next := u.lease(key(t), func(r *distributed.Request) { r.Prev = l })
		require.ErrorIs(t, <-answer, want, name)
		b.tr = straight
		release(t, next)
	}
}

// afterItsLeave has the server see an enter when the attempt has been given up.
type afterItsLeave struct {
	transport
	entering, left chan struct{}
}

func (x *afterItsLeave) do(ctx context.Context, calls ...*call) {
	if calls[0].script == enterScript {
		close(x.entering)
		<-x.left
	}
	x.transport.do(ctx, calls...)
	if calls[0].script == leaveScript {
		close(x.left)
	}
}

// TestEnterAgainstCloseIsClosed: it was taken for one of somebody who uses the instance's name as well.
func TestEnterAgainstCloseIsClosed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for range 20 { // Close may be anywhere when the answer comes
		b := open(t, s.Addr)
		require.NoError(t, b.Ping(t.Context()))
		x := &afterItsLeave{b.tr, make(chan struct{}), make(chan struct{})}
		b.tr = x
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
	p.SwallowReply(enterScript.sha)
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
type deafClaims struct {
	transport
	until time.Time
}

func (d *deafClaims) do(ctx context.Context, calls ...*call) {
	d.transport.do(ctx, calls...)
	for _, c := range calls {
		if c.script == renewScript && time.Now().Before(d.until) {
			c.reply, c.err = "", context.DeadlineExceeded
		}
	}
}

// A claim of a late grant whose reply stays away: the place is lost, and its lease is given back.
func TestUnansweredClaimLeavesNoLongGhost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	d := &deafClaims{until: time.Now().Add(time.Hour)}
	swapTransport(b, func(tr transport) transport { d.transport = tr; return d })
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

// punctual notes by how much an exchange passed its deadline.
type punctual struct {
	transport
	late atomic.Int64
}

func (p *punctual) do(ctx context.Context, calls ...*call) {
	by, _ := ctx.Deadline()
	p.transport.do(ctx, calls...)
	for late := int64(time.Since(by)); ; {
		old := p.late.Load()
		if late <= old || p.late.CompareAndSwap(old, late) {
			return
		}
	}
}

// TestSmallPoolHoldsNobodyUp: who finds no connection waits for one past its deadline, so there must be one for all that can
// be under way, whatever the application's client has. The default of go-redis is 10 for a processor.
func TestSmallPoolHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b, err := New(s.Client(func(o *redis.Options) { o.PoolSize = maxLanes }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	exchanges := &punctual{}
	swapTransport(b, func(tr transport) transport { exchanges.transport = tr; return exchanges })
	patient := newUser(t, b).lasting(longestTry * 6) // H is a second
	patient.lease(key(t))
	for range 4 * maxLanes { // whose heartbeats are due together now and then, and then need a connection of their own
		newUser(t, b).place(key(t)) // H is 100 ms
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 2*longestTry)
	defer cancel()
	var wg sync.WaitGroup
	for i := range maxLanes {
		wg.Go(func() { _, _, _ = patient.enter(ctx, fmt.Sprint(key(t), i)) })
	}
	wg.Wait()
	inTime(t, "past a deadline", time.Duration(exchanges.late.Load()), 0)
	s.Resume()
}
