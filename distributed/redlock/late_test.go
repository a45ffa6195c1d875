package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

// A claim that is answered when the votes have expired is no lease, though a majority votes for us: another may have held the lock
// in between, and a server among them may not count.
func TestAClaimThatIsAnsweredTooLate(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	leaseOf(t, b, request("k", "a")).Abandon() // it is in the way, no more
	p, a := placeOf(t, b, request("k", "b"))
	a.mu.Lock()
	a.state = claiming
	asked := a.seats[0].last.number
	a.mu.Unlock()
	for _, one := range s.all { // as if it had the votes
		one.Do("SET", a.key(), a.token)
	}
	a.claim(time.Now()) // which is when they expire
	l := await(t, p)
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Greater(t, a.seats[0].last.number, asked, "votes of later questions are needed")
	require.True(t, l.Healthy())
}

// A renewal that is answered when the lease has expired does not bring it back, if its end was not noticed yet: this process may
// have been stopped, and the servers that have the vote now may have voted for another meanwhile.
func TestARenewalThatIsAnsweredTooLate(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	a := newAttempt(b, request("k", "a"))
	for range 100 {
		l := newLease(a)
		now := time.Now()
		b.keeper.Keep(&l.Lease, l, time.Minute, now.Add(time.Millisecond), now.Add(time.Minute))
		for !distributed.Over(time.Now(), l.Until()) { // busy, so that the timer is late
		}
		r := l.renewal()
		r.sent, r.tally.held = now, b.quorum
		r.mu.Lock()
		then := r.decide(a)
		r.mu.Unlock()
		then()
		require.True(t, l.over(), "it is valid again")
		require.Equal(t, refused, r.verdict)
	}
}

// A release waits for a first try of each server, and for no question that an Enter has made needless.
func TestWhatAReleaseWaitsFor(t *testing.T) {
	b := &Backend{quorum: 2, attempts: newAttempts()}
	begun := func() *lease {
		l := newLease(&attempt{b: b, seats: make([]seat, 3)})
		l.parting.begun, l.parting.underWay = true, []int{1, 1, 1}
		return l
	}
	l := begun()
	l.parted(0, '1', true, nil)
	l.parted(1, '0', true, nil)
	require.False(t, l.parting.decided)
	l.parted(2, 0, false, errLate)
	require.True(t, l.parting.decided)
	require.NoError(t, l.parting.err)

	l = begun()
	l.adopt()
	for i := range 2 {
		require.False(t, l.parting.decided)
		require.True(t, l.needless(i))
		l.parted(i, '0', true, nil)
	}
	require.ErrorIs(t, l.parting.err, distributed.ErrLeaseLost)
}

// A foreigner's lock is respected whatever its value is.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	for name, set := range map[string][]any{
		"empty": {"SET", "empty", ""}, "list": {"LPUSH", "list", "x"}, "number": {"SET", "number", "1"}, "like readers": {"SET", "like readers", "wllock:rs"},
	} {
		for _, one := range s.all {
			one.Do(set...)
		}
		require.ErrorIs(t, refusal(t, b, request(name, "a", noWait)), distributed.ErrHeld, name)
		p, _ := placeOf(t, b, request(name, "a"))
		require.NoError(t, p.Leave(t.Context()), name)
		for _, one := range s.all {
			require.EqualValues(t, 1, one.Do("EXISTS", name))
			require.EqualValues(t, 0, one.Do("EXISTS", helper("q:", name)), "%s: the place is left", name)
			one.Do("DEL", name)
		}
		release(t, leaseOf(t, b, request(name, "a")))
	}
}

// A yield that is not answered may be carried out at any time, so the vote of that server is of no use to the attempt any more. It
// does not keep it from others: the place goes on with a new token, and gets the lock.
func TestAYieldWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := startFor(t, 3, time.Second)
	b := s.open()
	holder := tokenOf(identity.Attempt{Number: 1}, "HOLDER")
	for _, one := range s.all {
		one.Do("SET", "k", holder)
	}
	p, a := placeOf(t, b, request("k", "a", lasting(time.Second)))
	s.all[0].Do("DEL", "k")
	require.Eventually(t, func() bool { return s.all[0].Do("GET", "k") == a.token }, patience, time.Millisecond)
	s.proxies[0].SwallowReply(yieldScript.SHA)
	require.Eventually(t, func() bool { // as soon as it knows of its vote
		a.mu.Lock()
		then := a.yield(standing{owner: "wllock:1:NOBODY", mode: "x", rest: time.Second})
		a.mu.Unlock()
		then()
		return s.proxies[0].Swallowed() > 0
	}, patience, time.Millisecond)
	require.Eventually(t, func() bool { // by heartbeats it would stay
		owner := s.all[0].Do("GET", "k")
		return owner != nil && owner != a.token
	}, patience, time.Millisecond)
	for _, one := range s.all[1:] {
		one.Do("DEL", "k")
	}
	select {
	case l := <-p.Granted():
		require.NotEqual(t, a.token, l.(*lease).a.token)
		release(t, l)
	case <-time.After(patience):
		t.Fatal("not granted")
	}
}

// A vote is yielded to a reader that has this server's vote already, with what it had left elsewhere when that was looked at: it has renewed
// since, and counts on what it got here.
func TestAYieldShortensNoVote(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	s.listening(b)
	one := b.nodes[0]
	req := request("k", "a", shared)
	target, yields := newAttempt(b, req), newAttempt(b, req)
	require.True(t, b.attempts.inherit(target)) // else what is announced to it is given back
	for _, a := range []*attempt{target, yields} {
		require.Contains(t, says(t, one, a.call(enterScript, "s", 1, a.asked, 0, "")), "vote")
	}
	require.Contains(t, says(t, one, target.renewCall("s", 0)), "held")
	says(t, one, yields.call(yieldScript, "s", 2, yields.asked, target.token, "s", 50))
	time.Sleep(100 * time.Millisecond)
	require.Contains(t, says(t, one, target.renewCall("s", 0)), "held")
}

// A writer yields its vote to a reader that holds the lock by the other servers. One that waits behind it, and could share the lock, does not
// pass it.
func TestAYieldLetsNobodyPass(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	s.listening(b)
	one := b.nodes[0]
	reads := request("k", "c", shared)
	holder, writer, behind := newAttempt(b, reads), newAttempt(b, request("k", "b")), newAttempt(b, reads)
	require.True(t, b.attempts.inherit(holder))
	require.Contains(t, says(t, one, writer.call(enterScript, "x", 1, writer.asked, 0, "")), "vote")
	require.Contains(t, says(t, one, behind.call(enterScript, "s", 1, behind.asked, 0, "")), "wait")
	says(t, one, writer.call(yieldScript, "x", 2, writer.asked, holder.token, "s", 60_000))
	require.Contains(t, says(t, one, behind.call(heartbeatScript, "s", 2, behind.asked)), "wait")
}

// A copy of the process, as one that is restored from a snapshot, has its name and counts on from the same number. What it asks for is a
// request of its own, and no repeat.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b, twin := s.open(), s.open()
	twin.process = b.process
	b.attempts.last, twin.attempts.last = 1<<52, 1<<52 // of the future: the same number is next
	l := leaseOf(t, b, request("k", "i"))
	require.ErrorIs(t, refusal(t, twin, request("k", "i", noWait)), distributed.ErrHeld)
	release(t, l)
}

// Notices come on a connection of their own. The answer to a question that was sent before a notice came may be older than that: a holder
// that believed it would not know that others wait until its next renewal.
func TestAnAnswerThatIsOlderThanANotice(t *testing.T) {
	t.Parallel()
	b := start(t, 3).open()
	a := newAttempt(b, request("k", "a"))
	l := newLease(a)
	before := time.Now()
	a.mu.Lock()
	for i := range a.seats {
		a.seats[i].ask(before)
	}
	a.mu.Unlock()
	a.contended(0, true, time.Time{})
	a.mu.Lock()
	a.seats[0].told(standing{kind: 'v', longest: a.ttl}, time.Now())
	require.True(t, a.seats[0].standing.contended)
	a.lease = l
	l.start(before.Add(time.Minute))
	a.mu.Unlock()
	require.True(t, l.Contended())
	a.contended(0, false, before)
	require.True(t, l.Contended())
	a.contended(0, false, time.Now())
	require.False(t, l.Contended(), "nobody waits any more")
	l.Abandon()
}

// A release that was carried out, and not answered, finds nothing when it is sent again. That is no loss, whoever sent it: leave.lua, or an
// Enter that names the lease as Prev.
func TestAReleaseWithoutAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	s := startFor(t, 3, 10*time.Second)
	b := s.open()
	swallow := func(sha string) {
		for _, p := range s.proxies[:2] {
			p.SwallowReply(sha)
		}
	}
	held := leaseOf(t, b, request("k", "a", lasting(10*time.Second)))
	swallow(leaveScript.SHA)
	require.NoError(t, held.Release(t.Context()))
	for _, p := range s.proxies[:2] {
		require.Positive(t, p.Swallowed())
	}

	prev := leaseOf(t, b, request("k", "a", lasting(10*time.Second))).(*lease)
	swallow(enterScript.SHA)
	req := request("k", "a", lasting(10*time.Second))
	req.Prev = prev
	next := leaseOf(t, b, req)
	<-prev.parting.done
	require.NoError(t, prev.parting.err)
	release(t, next)
}
