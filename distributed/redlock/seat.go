package redlock

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// seat is what an attempt knows of itself on one server. Its fields are guarded by attempt.mu.
//
// A vote is worth as much as the certainty when it was given. Questions are numbered (epochs), one is under way at a time, and a
// server that gives its vote later says which question it saw last: so the vote was given after that was sent, and its window
// runs from then at least (rule Q3). A notice with any other number is stale and changes nothing: the vote may have expired, or
// have been yielded, since. A heartbeat finds the truth.
type seat struct {
	standing standing  // the last; kind 0: none yet
	voted    time.Time // sending of the question that a vote answers or follows; zero: no vote
	mature   time.Time // the vote does not count before: the server is young (rule Q5)
	err      error     // of the last question; nil: answered, or under way

	epoch    uint64    // of the last question sent
	sent     time.Time // when it was
	busy     bool      // it is under way
	answered uint64    // epoch of the last answer
	since    time.Time // when that was sent

	yielding bool // the question under way takes back our vote
	// void: a yield was not answered, so it may be carried out at any time: this server's votes for this attempt do not count
	// any more, not even in renewals.
	void bool
}

// ask notes that a question is sent, and returns its number.
func (s *seat) ask(now time.Time) uint64 {
	s.epoch++
	s.sent, s.busy = now, true
	return s.epoch
}

// yield is ask for a question that takes back our vote: from now on it is none.
func (s *seat) yield(now time.Time) uint64 {
	s.yielding, s.voted = true, time.Time{}
	return s.ask(now)
}

// failed: the question was not answered, or refused.
func (s *seat) failed(err error) {
	s.void = s.void || s.yielding
	s.busy, s.yielding, s.err = false, false, err
	if s.standing.kind != 'v' || s.void {
		s.standing.kind = 0
	}
}

// told takes an answer. longest is the longest lease TTL that we know of; the server may know less.
func (s *seat) told(now standing, at time.Time, longest time.Duration) {
	noticed := !s.voted.IsZero() && now.kind == 'w' // by a notice that overtook this answer
	s.busy, s.yielding, s.err = false, false, nil
	s.answered, s.since = s.epoch, s.sent
	s.mature = matureAt(at, now.youth, time.Duration(now.longest)*time.Millisecond, longest)
	if noticed {
		s.standing.contended = s.standing.contended || now.contended
		return
	}
	s.standing = now
	if now.kind != 'v' {
		s.voted = time.Time{}
		return
	}
	s.voted = s.sent
}

// matureAt is when the votes of a server begin to count, if it says that they do so after youth by the longest lease TTL that it
// knows: later, if we know of a longer one. Our next question tells it of that.
func matureAt(now time.Time, youth, known, longest time.Duration) time.Time {
	return now.Add(youth + max(0, longest-known))
}

// noticed takes a vote that the server has published. It reports false if the notice is stale.
func (s *seat) noticed(epoch uint64, contended bool) bool {
	var since time.Time
	switch {
	case s.void || s.yielding:
		return false
	case s.busy && epoch == s.epoch: // it has overtaken the answer
		since = s.sent
	case epoch != 0 && epoch == s.answered:
		since = s.since
	default:
		return false
	}
	s.voted, s.standing.contended = since, contended
	s.standing.kind, s.standing.mode, s.standing.owner = 'v', "", ""
	return true
}

// votes reports that the server votes for us, whether that counts yet or not.
func (s *seat) votes() bool { return !s.voted.IsZero() && !s.void }

// counts reports a vote that counts now: not of a young server, and not expired.
func (s *seat) counts(now time.Time, window time.Duration) bool {
	return s.votes() && s.answered > 0 && !now.Before(s.mature) && !distributed.Over(now, distributed.Validity(s.voted, window))
}

// votedUntil is up to when a majority of votes lasts. The caller holds mu.
func (a *attempt) votedUntil() (time.Time, bool) {
	now := time.Now()
	var sent []time.Time
	for i := range a.seats {
		if s := &a.seats[i]; s.counts(now, a.window()) {
			sent = append(sent, s.voted)
		}
	}
	return validUntil(len(a.seats), sent, a.window())
}
