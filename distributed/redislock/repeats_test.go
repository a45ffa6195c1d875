package redislock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/redistest"
)

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
