package redlock

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// The arithmetic of majorities and times: pure functions, so that tables can test them.

// quorum is how many of n servers decide: any two majorities share a server.
func quorum(n int) int { return n/2 + 1 }

// tally is what is known of one question to all servers.
type tally struct {
	n      int
	votes  int // that count
	waits  int // answered, without a vote that counts
	errs   int // not answered, or refused
	closed bool
}

// verdict is what a tally decides.
type verdict uint8

const (
	pending     verdict = iota
	granted             // a majority votes for us
	refused             // a majority answers, and no majority votes for us
	unavailable         // no majority can answer
)

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

// provenLost reports that so many servers no longer have our vote that the others are no majority.
func provenLost(n, missing int) bool { return missing > n-quorum(n) }

// validUntil is up to when a majority of votes lasts, each for d from the sending of the question that it answers or follows
// (rule K4): the majority that lasts longest ends with the q-th newest of them. ok is false if there is no majority.
func validUntil(n int, sent []time.Time, d time.Duration) (until time.Time, ok bool) {
	q := quorum(n)
	if len(sent) < q {
		return time.Time{}, false
	}
	newest := slices.Clone(sent)
	slices.SortFunc(newest, func(a, b time.Time) int { return b.Compare(a) })
	return distributed.Validity(newest[q-1], d), true
}

// late reports that too little of a claim window is left for a claim in the background.
func late(now, until time.Time, window time.Duration) bool {
	return distributed.Left(now, until) < window/4
}

// tryTimeout is how long one server may take to answer: H, because a vote that comes later has little of its window left, but no less than
// a busy machine needs, or a new connection over the server's network, as long as an answer is of use. rtt is its round trip; 0: not known.
func tryTimeout(ttl, rtt time.Duration) time.Duration {
	cold, window := coldTrips*rtt, distributed.ClaimWindow(ttl)
	if rtt == 0 {
		cold = window
	}
	return max(min(distributed.HeartbeatInterval(ttl), longestTry), shortestTry, min(cold, max(window, longestTry), connectTimeout))
}

// grace is how long a majority that has answered waits for the others, if these could make it a majority of votes: for
// several round trips, because the answers to one question come close together. After that a caller that may wait gets a place,
// which loses nothing; one with NoWait waits for its exact answer.
func grace(ttl, rtt time.Duration) time.Duration {
	return min(max(4*rtt, shortestGrace), tryTimeout(ttl, rtt))
}

const (
	shortestTry, longestTry = 20 * time.Millisecond, time.Second
	shortestGrace           = 5 * time.Millisecond
	// coldTrips are the round trips of the first exchange on a new connection and one to spare: HELLO, hello.lua, a script
	// that the server does not know yet, and its text.
	coldTrips = 5
	// connectTimeout bounds the making of a connection after a try that was too short for it: dial, HELLO, hello.lua and PING.
	connectTimeout = 2 * conn.DialTimeout
	// longestBackoff bounds the pause between questions to a server that fails: when it is back, it counts again after that.
	longestBackoff = 250 * time.Millisecond
	firstBackoff   = 10 * time.Millisecond
)

// backoff is the pause after k failures in a row: doubling, with full jitter, so that clients that failed together do not ask
// together (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
func backoff(k int) time.Duration { return fullJitter(doubled(firstBackoff, k, longestBackoff)) }

// doubled is base * 2^k, at most limit.
func doubled(base time.Duration, k int, limit time.Duration) time.Duration {
	return min(base<<min(k, 20), limit)
}

func fullJitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// jittered is d plus or minus up to a tenth.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// splitPause is how long the oldest of a split vote waits before it asks for the k-th time whether the others have yielded:
// a round trip for them to learn of the split and one to yield, then exponential backoff with full jitter, at most H.
func splitPause(k int, rtt, heartbeat time.Duration) time.Duration {
	base := max(rtt, shortestSplitPause)
	return min(base+fullJitter(doubled(base, k, heartbeat)), heartbeat)
}

const shortestSplitPause = 500 * time.Microsecond
