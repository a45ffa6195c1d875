package redlock

import (
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// How long we wait: no promise depends on these times, only how soon something is noticed, and how much is asked.

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
