package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

// A claim that is answered when the votes have expired is no lease, though a majority votes for us: another may have held the lock
// in between, and a server among them may not count. What is left of the votes is released.
func TestAClaimThatIsAnsweredTooLate(t *testing.T) {
	s, b := three(t)
	leaseOf(t, b, request("k", "a")).Abandon() // it is in the way, no more
	p, a := placeOf(t, b, request("k", "b"))
	a.mu.Lock()
	a.phase, a.until = won, time.Now() // which is when they expire
	a.mu.Unlock()
	s.do("SET", a.key(), a.token) // as if it had the votes
	claim := a.extend()
	<-claim.decided
	require.Equal(t, refused, claim.verdict)
	require.Nil(t, <-p.Granted(), "votes of later questions are needed")
	require.True(t, leaseOf(t, b, request("k", "b")).Healthy())
}

// A renewal that is answered when the lease has expired does not bring it back, if its end was not noticed yet: this process may
// have been stopped, and the servers that have the vote now may have voted for another meanwhile.
func TestARenewalThatIsAnsweredTooLate(t *testing.T) {
	_, b := three(t)
	l := leaseOf(t, b, request("k", "a", lasting(2*time.Second)))
	l.Abandon()
	r := bidOf(l).renewal("renew")
	for !distributed.Over(time.Now(), l.Until()) { // busy at the end, so that the timer is late
		time.Sleep(time.Until(l.Until()) - 100*time.Millisecond)
	}
	for _, n := range b.nodes {
		k := &ask{node: n}
		k.Reply = "held 0 3600000 0"
		r.done(k)
	}
	require.True(t, bidOf(l).over(), "it is valid again")
	require.Equal(t, refused, r.verdict)
}

// A release waits for a first try of each server, and for no question that an Enter has made needless.
func TestWhatAReleaseWaitsFor(t *testing.T) {
	b := &Backend{quorum: 2}
	begun := func() *bid {
		l := &bid{b: b, until: time.Now(), parting: newParting(3)}
		l.parting.underWay = []int{1, 1, 1}
		return l
	}
	l := begun()
	l.parted(0, '1', true, nil)
	l.parted(1, '0', true, nil)
	require.Equal(t, pending, l.parting.verdict)
	l.parted(2, 0, false, errLate)
	require.Equal(t, granted, l.parting.verdict)
	<-l.parting.done

	l = begun()
	l.adopt()
	for i := range 2 {
		require.Equal(t, pending, l.parting.verdict)
		require.True(t, l.needless(i))
		l.parted(i, '0', true, nil)
	}
	require.Equal(t, refused, l.parting.verdict)
}

// When all tries of a release are over and no majority has answered, it is tried again where nobody has.
func TestAReleaseIsTriedAgain(t *testing.T) {
	_, b := three(t)
	l := bidOf(leaseOf(t, b, request("k", "a")))
	for i := range 3 {
		l.mu.Lock()
		l.parting.underWay[i]++
		l.mu.Unlock()
	}
	l.parted(0, '1', true, nil)
	l.parted(1, 0, true, errLate)
	l.parted(2, 0, true, errLate)
	require.Equal(t, unavailable, l.parting.verdict)
	<-l.depart()
	require.Equal(t, granted, l.parting.verdict)
}

// A foreigner's lock is respected whatever its value is.
func TestForeignValues(t *testing.T) {
	s, b := three(t)
	for name, set := range map[string][]any{
		"empty": {"SET", "empty", ""}, "list": {"LPUSH", "list", "x"}, "number": {"SET", "number", "1"}, "like readers": {"SET", "like readers", "wllock:rs"},
	} {
		s.do(set...)
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
	s.do("SET", "k", holder)
	p, a := placeOf(t, b, request("k", "a", lasting(time.Second)))
	s.all[0].Do("DEL", "k")
	require.Eventually(t, func() bool { return s.all[0].Do("GET", "k") == a.token }, patience, time.Millisecond)
	s.proxies[0].SwallowReply(yieldScript.SHA)
	require.Eventually(t, func() bool { // as soon as it knows of its vote
		a.mu.Lock()
		asks := a.yield(standing{owner: "wllock:1:NOBODY", mode: "x", rest: time.Second})
		a.mu.Unlock()
		sendAll(asks)
		return s.proxies[0].Swallowed() > 0
	}, patience, time.Millisecond)
	require.Eventually(t, func() bool { // by heartbeats it would stay
		owner := s.all[0].Do("GET", "k")
		return owner != nil && owner != a.token
	}, patience, time.Millisecond)
	for _, one := range s.all[1:] {
		one.Do("DEL", "k")
	}
	l := await(t, p)
	require.NotEqual(t, a.token, bidOf(l).token)
	release(t, l)
}

// A vote is yielded to a reader that has this server's vote already, with what it had left elsewhere when that was looked at: it has renewed
// since, and counts on what it got here.
func TestAYieldShortensNoVote(t *testing.T) {
	s, b := three(t)
	s.listening(b)
	one := b.nodes[0]
	req := request("k", "a", shared)
	target, yields := known(b, req), newBid(b, req) // else what is announced to it is given back
	for _, a := range []*bid{target, yields} {
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
	s, b := three(t)
	s.listening(b)
	one := b.nodes[0]
	reads := request("k", "c", shared)
	holder, writer, behind := known(b, reads), newBid(b, request("k", "b")), newBid(b, reads)
	require.Contains(t, says(t, one, writer.call(enterScript, "x", 1, writer.asked, 0, "")), "vote")
	require.Contains(t, says(t, one, behind.call(enterScript, "s", 1, behind.asked, 0, "")), "wait")
	says(t, one, writer.call(yieldScript, "x", 2, writer.asked, holder.token, "s", 60_000))
	require.Contains(t, says(t, one, behind.call(heartbeatScript, "s", 2, behind.asked)), "wait")
}

// A copy of the process, as one that is restored from a snapshot, has its name and counts on from the same number. What it asks for is a
// request of its own, and no repeat.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	s, b := three(t)
	twin := s.open()
	twin.process = b.process
	b.last.Store(1 << 52)
	twin.last.Store(1 << 52) // of the future: the same number is next
	l := leaseOf(t, b, request("k", "i"))
	require.ErrorIs(t, refusal(t, twin, request("k", "i", noWait)), distributed.ErrHeld)
	release(t, l)
}

// Notices come on a connection of their own. The answer to a question that was sent before a notice came may be older than that: a holder
// that believed it would not know that others wait until its next renewal.
func TestAnAnswerThatIsOlderThanANotice(t *testing.T) {
	_, b := three(t)
	tells := func(word string, a *bid) {
		b.nodes[0].OnMessage(prefixOf("")+b.process, fmt.Sprintf("%s %s other k", word, a.token))
	}
	a, before := known(b, request("k", "a")), time.Now()
	a.mu.Lock()
	for i := range a.seats {
		a.seats[i].ask(before)
	}
	a.mu.Unlock()
	tells("want", a)
	a.mu.Lock()
	a.seats[0].told(standing{kind: 'v', longest: a.ttl}, time.Now())
	require.True(t, a.seats[0].standing.contended)
	a.mu.Unlock()
	tells("idle", a)
	require.False(t, a.seats[0].standing.contended, "nobody waits any more")

	l := leaseOf(t, b, request("k", "a"))
	a = bidOf(l)
	tells("want", a)
	require.True(t, l.Contended())
	answers := func(p *poll) {
		for _, n := range b.nodes {
			k := &ask{node: n}
			k.Reply = "held 0 3600000 0"
			p.done(k)
		}
		require.Equal(t, granted, p.verdict)
	}
	tells("idle", a)
	require.False(t, l.Contended(), "nobody waits any more")
	old := a.renewal("renew")
	tells("want", a)
	answers(old)
	require.True(t, l.Contended())
	answers(a.renewal("renew"))
	require.False(t, l.Contended())
	release(t, l)
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

	prev := leaseOf(t, b, request("k", "a", lasting(10*time.Second)))
	swallow(enterScript.SHA)
	req := request("k", "a", lasting(10*time.Second))
	req.Prev = prev
	next := leaseOf(t, b, req)
	<-bidOf(prev).parting.done
	require.Equal(t, granted, bidOf(prev).parting.verdict)
	release(t, prev)
	release(t, next)
}
