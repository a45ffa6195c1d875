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
	born     time.Time // the server has had its data since then at least: its vote does not count for the longest TTL (rule Q5)
	early    bool      // the vote was noticed before the answer to the question that it follows
	err      error     // of the last question; nil: answered, or under way

	epoch    uint64    // of the last question sent
	sent     time.Time // when it was
	busy     bool      // it is under way
	answered uint64    // epoch of the last answer
	since    time.Time // when that was sent

	// wanted is when a notice said last that another waits; zero: none has, or nobody does any more. Notices come on a connection of their
	// own, so one may overtake the answer to a question that was sent before it: such an answer does not know of it.
	wanted time.Time

	yielding bool // the question under way takes back our vote
	// void: a yield was not answered, so it may be carried out at any time: this server's votes for this attempt do not count
	// any more, not even in renewals. Or a Break took what it had for a lease's, and the server votes for this token no more.
	void bool
}

// ask notes that a question is sent, and returns its number.
func (s *seat) ask(now time.Time) uint64 {
	s.epoch++
	s.sent, s.busy, s.early = now, true, false
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

// told takes an answer.
func (s *seat) told(now standing, at time.Time) {
	noticed := s.early && now.kind == 'w' // by a notice that overtook this answer
	s.busy, s.yielding, s.early, s.err = false, false, false, nil
	s.answered, s.since = s.epoch, s.sent
	s.void = s.void || now.mode == "b"
	if noticed { // the notice knows of a restart after the answer
		s.born = laterOf(s.born, at.Add(-now.age))
		s.standing.contended = s.standing.contended || now.contended
		return
	}
	now.contended = now.contended || s.wanted.After(s.sent)
	s.standing, s.born = now, at.Add(-now.age)
	if now.kind != 'v' {
		s.voted = time.Time{}
		return
	}
	s.voted = s.sent
}

// noticed takes a vote that the server has published. It reports false if the notice is stale. A server that was restarted
// with its queue may publish votes that follow questions of before: so the notice says how old the server is.
func (s *seat) noticed(m message, at time.Time) bool {
	var since time.Time
	switch {
	case s.void || s.yielding:
		return false
	case s.busy && m.epoch == s.epoch: // it has overtaken the answer
		since, s.early = s.sent, true
	case m.epoch != 0 && m.epoch == s.answered:
		since = s.since
	default:
		return false
	}
	s.voted, s.born, s.standing.contended = since, at.Add(-m.age), m.contended
	s.standing.kind, s.standing.mode, s.standing.owner, s.standing.longest = 'v', "", "", m.longest
	return true
}

// contention notes what a notice says about others that wait.
func (s *seat) contention(waits bool, at time.Time) {
	s.standing.contended, s.wanted = waits, time.Time{}
	if waits {
		s.wanted = at
	}
}

// votes reports that the server votes for us, whether that counts yet or not.
func (s *seat) votes() bool { return !s.voted.IsZero() && !s.void }

// mature is when the server's vote begins to count: it has kept its data for the longest lease TTL that we have heard of by now.
func (s *seat) mature(longest time.Duration) time.Time { return s.born.Add(longest) }

// young reports a vote that does not count yet: the server may have forgotten another, or has not noted our TTL, because it was too young
// for that when it was asked last.
func (s *seat) young(now time.Time, ttl, longest time.Duration) bool {
	return s.votes() && (now.Before(s.mature(longest)) || s.standing.longest < millis(ttl))
}

// counts reports a vote that counts now: not of a young server, and not expired.
func (s *seat) counts(now time.Time, ttl, longest time.Duration) bool {
	return s.votes() && s.answered > 0 && !s.young(now, ttl, longest) &&
		!distributed.Over(now, distributed.Validity(s.voted, distributed.ClaimWindow(ttl)))
}

// votedUntil is up to when a majority of votes lasts. The caller holds mu.
func (a *attempt) votedUntil() (time.Time, bool) {
	now, longest := time.Now(), a.longest()
	var sent []time.Time
	for i := range a.seats {
		if s := &a.seats[i]; s.counts(now, a.ttl, longest) {
			sent = append(sent, s.voted)
		}
	}
	return validUntil(len(a.seats), sent, a.window())
}
