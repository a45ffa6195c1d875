package redlock

import (
	"math/bits"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
)

// The rules of the quorum: plain functions of what was said and when. Whoever holds state (bid, poll, parting, node) asks
// them, under its own mutex. Q1 to Q13 stand in doc.go, K4 in docs/design.md.
//
// # The model
//
// There are n servers, n odd, and a majority is q = n/2+1. A server keeps for each lock one vote, with an end: for one exclusive attempt,
// or for readers, each with an end of its own. It also keeps a queue (Q2), the last fence reserved (Q7), and whom a Break has ended
// (Q10). For each system it keeps a mark: since when it has the system's data, and the longest TTL in use there. T is a lease's TTL, and
// W = T/2 the window of a vote.
//
// Questions and answers may be lost, late and repeated, and a question may be carried out long after its asker gave up on it. Processes may
// die or stand still. Servers may be away, and lose their data.
//
// # What is presumed
//
//	P1  Clocks run at the same speed, but for the drift allowance: 1% and 10 ms.
//	P2  Fewer than q servers lose their data within the longest TTL. One that does knows: its mark is gone, or of another process.
//	P3  Instances know the longest TTL in use, by WithLongestTTL or from a server that counts for both: docs/redlock.md says when not.
//	P4  The n servers are n processes (their run_ids are compared), nobody deletes or evicts our keys, and no server's clock is set forward.
//
// # Why there are never two holders
//
//	1. A server has one vote. Every vote is given by take (common.lua) or by the first lines of enter.lua: an exclusive one by SET NX, where
//	   no key is, a reader's where none or readers are. Or transfer.lua puts a token in place of the one that has the vote. So at no moment
//	   does a server vote for a writer and for somebody else.
//	2. A vote that counts is there. It counts for W from the sending of the question that it answers or follows, less the drift (K4, vote).
//	   The server gave it after that, for W or more, and nothing shortens it. One that was adopted may last for less than W, and counts
//	   for as much less (Q13). So by P1 it has not expired. We ask for it to be taken back only after we have stopped counting it: a
//	   release begins with the end of the lease, a yield takes it out of the count. A yield that is not answered may be carried out
//	   later: that vote never counts again for this token (void, Q3). A question that comes late names a token that nobody has but its
//	   attempt, so it takes nothing from others.
//	3. So a lease has the votes of a majority while it is valid. It begins with q votes that count, and lasts as long as the q-th newest of
//	   them (majoritySince). A renewal that q servers answer with "held" makes it valid for T from the sending, if it is decided before the
//	   lease ends (held.judge): so there is no gap. A claim is the first renewal.
//	4. Two majorities share a server. Let A be granted while B is valid, as the first such moment, with one of the two exclusive, and s be
//	   a server that A counts and that B's last round has counted. If s has not lost its data it has B's vote (2, 3), so A's is none.
//	5. If s lost its data after it answered B, and before it voted for A, it is younger than B's T: A waits until s has its data for the
//	   longest TTL (vote.counts, Q5), which is no less (P3), and by then B's round is over. If s lost it after it voted for A, then B has
//	   counted it before that, and 4 holds, or after that. Then s was younger than A's W, because A counts its vote; but B counts
//	   s in a renewal only when it has its data for the longest TTL (held.count, Q6). By P2 the servers that do not count
//	   are no majority, so the lock is not lost for all.
//
// A writer and readers are kept apart by the same steps: readers count on votes that a server gives beside each other, and never beside a
// writer's (1). A lease that is downgraded takes itself for shared before it asks, and its vote never goes in between.
//
// # Why fences grow
//
//	6. A block is used after q servers that count have written its end, each while it had our vote, knew no larger fence, and had a clock
//	   behind the block (fence.lua), and only while the lease is valid. The next holder's block is written by a majority later, so a
//	   server in both had written ours before. If it has not forgotten that, the next is larger. It forgets it when its clock has
//	   passed it, and the next is above that clock (Q7). If it lost its data, its clock alone makes them grow.
//
// # What takes a vote back
//
//	release  the lease was held to its end if q servers had the vote still; or if all were tried, a majority has answered, and those that had
//	         lost it are too few to prove a loss (releases). That decides what the caller is told: the lease has ended before.
//	yield    as in 2; where a majority votes for nobody the youngest give way (Q4), which is for progress, and not for safety
//	transfer only what is not counted goes to another token: the votes of a lease that has ended, of a detached one, or of an adopter that
//	         has given up (Q13)
//	Break    servers give the vote on before the holder hears of it, so until it asks, T at most, two may be inside. That is what an
//	         operator asks for; the next fence is above the holder's. No server that answered votes for that token again (Q10).
//	restart  as in 5; its connections ended with it, and each new one begins with hello, which finds the marks of another process;
//	         hello also goes before the first question about a system that was not known when the connection was made (space)
//	silence  an answer that is missing gives nothing and takes nothing: what was counted counts until its time is over
//
// # What remains
//
// A clock that is set forward ends votes early, against P4. A process that has asked that server before sees its age leap, and does not
// count it for the longest TTL (ages). If it has not, or not for so long that the leap passes for drift, a step by more than W of the one
// server that two majorities share may let two in. The store that checks fences refuses the one that came first.

// quorum is how many of n servers decide: any two majorities share a server.
func quorum(n int) int { return n/2 + 1 }

// provenLost reports that so many servers no longer have our vote that the others are no majority.
func provenLost(n, missing int) bool { return missing > n-quorum(n) }

// verdict is what the answers of servers decide.
type verdict uint8

const (
	pending     verdict = iota
	granted             // a majority has done it
	refused             // a majority has answered, and no majority has done it or can
	unavailable         // no majority can answer
	higher              // of fences: a majority has our vote, and larger ones are known
)

// ages is how the age of a server's data grows for us (rule Q5). If it has grown by more than our monotonic clock, the server's clock was
// set forward, and votes have expired there too early: so that server is born anew for us, since the two majorities of a split vote may
// share just this one. An age is told after the question was sent, and before the answer is here, so what is between two ages is at
// most what is between the first question and the second answer. Answers may come in any order: one that was sent before the last one
// is compared, and is not kept.
type ages struct {
	sent  time.Time // of the last question that was answered with an age; zero: none
	age   time.Duration
	leapt time.Time // when we noticed the last step; zero: never
}

// vouchedAge is beyond the age of any server, but one that is vouched for: that was born in 1970.
const vouchedAge = 30 * 365 * 24 * time.Hour

// trust returns how old the server's data is for us: as it says, if its clock was not set forward meanwhile. sent is zero for a notice.
func (g ages) trust(sent, now time.Time, age time.Duration) (ages, time.Duration) {
	switch passed := now.Sub(g.sent); {
	case age > vouchedAge && g.age < vouchedAge: // an operator knows better
		g.sent, g.leapt = time.Time{}, time.Time{}
	case g.sent.IsZero():
	case age-g.age > passed+distributed.Drift(passed):
		g.sent, g.leapt = time.Time{}, now
	}
	if sent.After(g.sent) {
		g.sent, g.age = sent, age
	}
	if g.leapt.IsZero() {
		return g, age
	}
	return g, min(age, now.Sub(g.leapt))
}

// inUse is the longest TTL that a server has said to be in use. It is forgotten when none has said so for as long as it lasts: servers that
// remember it keep saying so. It is told to no server, or servers and processes would remind each other for ever.
type inUse struct {
	ttl time.Duration
	at  time.Time // when it was heard last
}

// hear returns what is remembered after a TTL was heard of (0: none).
func (u inUse) hear(now time.Time, ttl time.Duration) inUse {
	if ttl >= u.ttl || now.Sub(u.at) >= u.ttl {
		return inUse{ttl, now}
	}
	return u
}

// question is one of those of an attempt to a server. They are numbered, and one is under way at a time.
type question struct {
	number uint64 // 0: none
	sent   time.Time
}

// vote is what an attempt knows of a server's vote.
//
// It is worth as much as the certainty when it was given. A server that gives its vote later says which question it saw last: so the vote
// was given after that was sent, and its window runs from then at least (rule Q3). A notice that follows neither the last question that
// was answered nor the one under way is stale and changes nothing: the vote may have expired, or have been yielded, since. A heartbeat
// finds the truth.
type vote struct {
	since time.Time     // sending of the question that it answers or follows; zero: no vote
	born  time.Time     // the server has had its data since then at least
	noted time.Duration // the longest TTL that it says to be in use

	last     question
	answered question // the last that was
	busy     bool     // the last is under way
	early    bool     // the vote was noticed before the answer to the question that it follows
	yielding bool     // the question under way takes the vote back

	// void: a yield was not answered, so it may be carried out at any time: this server's votes for this attempt do not count
	// any more, not even in renewals. Or a Break took what it had for a lease's, and the server votes for this token no more.
	void bool
}

// ask notes that a question is sent, and returns its number.
func (v *vote) ask(now time.Time) uint64 {
	v.last = question{v.last.number + 1, now}
	v.busy, v.early = true, false
	return v.last.number
}

// yield is ask for a question that takes the vote back: from now on it is none.
func (v *vote) yield(now time.Time) uint64 {
	v.yielding, v.since = true, time.Time{}
	return v.ask(now)
}

// missed: the question was not answered, or refused.
func (v *vote) missed() {
	v.void = v.void || v.yielding
	v.busy, v.yielding = false, false
}

// told takes an answer. It returns false if a notice has overtaken that: the server has voted since, and the notice knows of a restart after
// the answer.
func (v *vote) told(votes, broken bool, age, noted time.Duration, at time.Time) bool {
	overtaken := v.early && !votes
	v.busy, v.yielding, v.early = false, false, false
	v.answered = v.last
	v.void = v.void || broken
	if overtaken {
		v.born = laterOf(v.born, at.Add(-age))
		return false
	}
	v.born, v.noted, v.since = at.Add(-age), noted, time.Time{}
	if votes {
		v.since = v.last.sent
	}
	return true
}

// noticed takes a vote that the server has published after it saw the question of this number. It reports false if the notice is stale. A
// server that was restarted with its queue may publish votes that follow questions of before: so the notice says how old the server is.
func (v *vote) noticed(number uint64, age, noted time.Duration, at time.Time) bool {
	switch {
	case v.void || v.yielding:
		return false
	case v.busy && number == v.last.number: // it has overtaken the answer
		v.since, v.early = v.last.sent, true
	case number != 0 && number == v.answered.number:
		v.since = v.answered.sent
	default:
		return false
	}
	v.born, v.noted = at.Add(-age), noted
	return true
}

// given reports that the server votes for us, whether that counts yet or not.
func (v *vote) given() bool { return !v.since.IsZero() && !v.void }

// mature is when the server's vote begins to count: it has kept its data for the longest lease TTL that we have heard of by now.
func (v *vote) mature(longest time.Duration) time.Time { return v.born.Add(longest) }

// young reports a vote that does not count yet: the server may have forgotten another, or has not noted our TTL, because it was too young
// for that when it was asked last.
func (v *vote) young(now time.Time, ttl, longest time.Duration) bool {
	return v.given() && (now.Before(v.mature(longest)) || v.noted < ttl)
}

// counts reports a vote that counts now: not of a young server, and not expired.
func (v *vote) counts(now time.Time, ttl, longest time.Duration) bool {
	return v.given() && v.answered.number > 0 && !v.young(now, ttl, longest) &&
		!distributed.Over(now, distributed.Validity(v.since, distributed.ClaimWindow(ttl)))
}

// majoritySince is from when on a majority of votes lasts, each from the sending of the question that it answers or follows (rule K4). The
// majority that lasts longest begins with the q-th newest of them. Zero: there is no majority.
func majoritySince(n int, since []time.Time) (sent time.Time) {
	if len(since) < quorum(n) {
		return sent
	}
	oldest := slices.SortedFunc(slices.Values(since), time.Time.Compare)
	return oldest[len(oldest)-quorum(n)]
}

// tally is what is known of a question that asks all servers for their votes.
type tally struct {
	n      int
	votes  int // that count
	waits  int // answered, without a vote that counts
	errs   int // not answered, or refused
	closed bool

	busy  int // have not answered the last question yet
	given int // vote for us, whether that counts or not
	young int // of these, do not count yet
}

// judge decides as soon as no further answer can change the outcome (rule Q1). A closed tally has waited long enough for the slow: a
// majority that has answered decides alone.
func (t tally) judge() verdict {
	q, open := quorum(t.n), t.n-t.votes-t.waits-t.errs
	switch {
	case t.votes >= q:
		return granted
	case t.errs > t.n-q:
		return unavailable
	case t.votes+open < q, t.closed && t.votes+t.waits >= q:
		return refused
	}
	return pending
}

// held is what servers have said to a renewal, or to a reservation of fences (rule Q7).
type held struct {
	n      int
	ok     int // they have had our vote until now, and have reserved the fences
	high   int // they have, and know larger fences
	gone   int // they had it not
	failed int // no answer, or of a server that does not count yet
}

// count adds what a server says; word is "" for no answer. One that says "new" has voted again, for W, and counts the next time. A young one
// may have forgotten a vote that a waiter still counts, or a fence (rule Q6).
func (t *held) count(word string, young, void bool) {
	done := word == "held" || word == "ok"
	switch {
	case word == "", done && young && !void:
		t.failed++
	case done && !void:
		t.ok++
	case word == "high":
		t.high++
	default:
		t.gone++
	}
}

// judge decides about a lease, or about votes that are claimed. over: these have ended meanwhile, so a success comes too late: another may
// have held the lock before some votes came back.
func (t held) judge(over bool) verdict {
	q, all := quorum(t.n), t.ok+t.high+t.gone+t.failed == t.n
	switch {
	case t.ok >= q && !over:
		return granted
	case t.ok >= q, provenLost(t.n, t.gone):
		return refused
	case all && t.high > 0 && t.ok+t.high >= q, t.high > t.n-q:
		return higher
	case all:
		return unavailable
	}
	return pending
}

// releases is what servers have said to a release. Several questions about it may be under way to a server, and one of them finds the
// vote. Sets are of bits by server.
type releases struct {
	found    uint64 // the vote was there, and is released
	missing  uint64 // it was not; final when nothing is under way there
	failed   uint64 // a try has failed
	perhaps  uint64 // that try may have released the vote: then it is no proof of a loss that a later one misses it
	underWay []int  // questions, by server
}

// judge decides: granted, the lease was held to the end; refused, it was lost before; unavailable, nobody will know. It waits for a first
// try of all servers, unless a majority is known.
func (r releases) judge() verdict {
	n, final, had := len(r.underWay), uint64(0), r.found|r.missing&r.perhaps
	tried, over := true, true
	for i, k := range r.underWay {
		bit := uint64(1) << i
		if k == 0 {
			final |= r.missing &^ had & bit
		}
		tried = tried && (k == 0 || r.failed&bit != 0)
		over = over && k == 0
	}
	found, missing := bits.OnesCount64(had), bits.OnesCount64(final)
	switch {
	case found >= quorum(n), tried && found+missing >= quorum(n) && !provenLost(n, missing):
		return granted
	case provenLost(n, missing):
		return refused
	case over:
		return unavailable
	}
	return pending
}

// leastFence is the least first fence that a majority would reserve, by what each server that has our vote would.
func leastFence(n int, wants []uint64) uint64 {
	sorted := slices.Sorted(slices.Values(wants))
	return sorted[quorum(n)-1]
}

// judgeBreak decides whether a Break has ended a lease: broken servers have taken its vote back, high ones know larger fences.
func judgeBreak(n, answered, broken, high int) verdict {
	switch {
	case high > 0 && broken < quorum(n):
		return higher
	case broken == 0 || broken+n-answered < quorum(n): // it had no majority
		return refused
	}
	return granted
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
