package redislock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

func TestAGhostCostsAtMostItsClaimWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	ghost := attemptOf(b, distributed.Request{Key: key(t), Instance: "ghost", TTL: testTTL}) // nobody registers it
	b.s.tr.Do(t.Context(), ghost.Wire.enter(noPrev))
	p := newUser(t, b).place(key(t))
	start := time.Now()
	l := granted(t, p)
	inTime(t, "a ghost that got the lock", time.Since(start), distributed.ClaimWindow(testTTL))

	b.s.tr.Do(t.Context(), ghost.Wire.enter(noPrev)) // and now it is queued
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
	for _, c := range []*conn.Call{late.Wire.leave(), late.Wire.enter(noPrev)} {
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
	ask(later.Wire.enter(noPrev))
	require.Equal(t, "over", ask(late.Wire.leave()))
	s.Do("DEL", key(t)) // as if it had expired
	require.Equal(t, string(outdated), ask(late.Wire.enter(noPrev)))
	require.Equal(t, "over", ask(late.Wire.leave()), "the first answer again")
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
		b.s.renewBatch(t.Context(), []*attempt{l.a})
		require.Greater(t, time.Until(l.Until()), 9*time.Second)
		for _, c := range []*conn.Call{l.a.Wire.enter(noPrev), l.a.Wire.heartbeat()} {
			b.s.tr.Do(t.Context(), c)
			require.NoError(t, c.Err)
			require.Equal(t, "lease", answered(c), "the first answer again")
		}
		require.Greater(t, s.Do("PTTL", key(t)+name), int64(9000), name)
		if name == "shared" {
			score, _ := s.Do("ZSCORE", l.a.Wire.args[conn.HeadLen+4], b.s.process+":"+fmt.Sprint(l.a.Wire.id)+":"+u.name).(float64)
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
		c := l.a.Wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.Equal(t, driver.Removed, readLeave(c.Reply))
	}
	other := newUser(t, b).lease(key(t))
	c := l.a.Wire.leave()
	b.s.tr.Do(t.Context(), c)
	require.Equal(t, driver.Removed, readLeave(c.Reply))
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
		c := l.a.Wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.Equal(t, driver.Lost, readLeave(c.Reply))
	}
	c := attemptOf(b, distributed.Request{Key: key(t), Instance: u.name, TTL: testTTL}).Wire.enter(asPrev(l.a))
	b.s.tr.Do(t.Context(), c)
	require.NoError(t, c.Err)
	require.Equal(t, "lost", answered(c), "and an enter that names it as prev")
	c = l.a.Wire.enter(noPrev)
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
			c := a.Wire.enter(asPrev(l.a))
			b.s.tr.Do(t.Context(), c)
			require.NoError(t, c.Err)
			require.Equal(t, "lost", answered(c), "%s: %s", name, c.Reply)
		}
		c := l.a.Wire.leave()
		b.s.tr.Do(t.Context(), c)
		require.NoError(t, c.Err)
		require.Equal(t, "lost", answered(c), "%s: and if no answer comes at all, its release reports it", name)
		c = a.Wire.leave()
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

// besideClose has the server see an enter when the Backend is being closed.
type besideClose struct {
	conn.Transport
	b        *Backend
	entering chan struct{}
}

func (x *besideClose) Do(ctx context.Context, calls ...*conn.Call) {
	if calls[0].Script == enterScript {
		close(x.entering)
		for !x.b.client.Closed() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Millisecond) // or the lease is the caller's, and expires
	}
	x.Transport.Do(ctx, calls...)
}

// A copy of the process, as one that is restored from a snapshot, has its name and counts on from the same number. What it asks for is a
// request of its own, and no repeat: neither at once, nor in the queue.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b, twin := open(t, s.Addr), open(t, s.Addr)
	twin.s.process = b.s.process
	for _, mode := range []distributed.Mode{distributed.Exclusive, distributed.Shared} {
		number, its := b.client.NextNumber(), twin.client.NextNumber()
		for ; number < its; number = b.client.NextNumber() {
		}
		for ; its < number; its = twin.client.NextNumber() {
		}
		req := distributed.Request{Key: key(t) + mode.String(), Instance: "i", Mode: mode, Limit: int(mode), TTL: time.Minute}
		l, _, err := b.Enter(t.Context(), req)
		require.NoError(t, err)
		l2, _, err := twin.Enter(t.Context(), req)
		require.Nil(t, l2)
		if err != nil { // it is taken for an earlier attempt
			require.ErrorIs(t, err, distributed.ErrRefused)
		}
		require.NoError(t, l.Release(t.Context()))
	}
}
