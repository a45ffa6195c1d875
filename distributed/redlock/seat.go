package redlock

import "time"

// seat is what a bid knows of itself on one server. Its fields are guarded by bid.mu.
type seat struct {
	vote
	standing standing // the last; kind 0: none yet
	err      error    // of the last question; nil: answered, or under way

	// wanted is when a notice said last that another waits; zero: none has, or nobody does any more. Notices come on a connection of their
	// own, so one may overtake the answer to a question that was sent before it: such an answer does not know of it.
	wanted time.Time
}

// failed: the question was not answered, or refused.
func (s *seat) failed(err error) {
	s.err = err
	if s.missed(); s.standing.kind != 'v' || s.void {
		s.standing.kind = 0
	}
}

// told takes an answer.
func (s *seat) told(now standing, at time.Time) {
	s.err = nil
	if !s.vote.told(now.kind == 'v', now.mode == "b", now.age, now.longest, at) {
		s.standing.contended = s.standing.contended || now.contended
		return
	}
	now.contended = now.contended || s.wanted.After(s.last.sent)
	s.standing = now
}

// noticed takes a vote that the server has published. It reports false if the notice is stale.
func (s *seat) noticed(m message, at time.Time) bool {
	if !s.vote.noticed(m.epoch, m.age, m.longest, at) {
		return false
	}
	s.standing = standing{kind: 'v', contended: m.contended, rank: s.standing.rank, rest: s.standing.rest}
	return true
}

// contention notes what a notice says about others that wait.
func (s *seat) contention(waits bool, at time.Time) {
	s.standing.contended, s.wanted = waits, time.Time{}
	if waits {
		s.wanted = at
	}
}

// votedSince is when the question was sent from which on a majority of votes lasts. The caller holds mu.
func (a *bid) votedSince() (time.Time, bool) {
	now, longest := time.Now(), a.longest()
	var since []time.Time
	for i := range a.seats {
		if s := &a.seats[i]; s.counts(now, a.ttl, longest) {
			since = append(since, s.since)
		}
	}
	return majoritySince(len(a.seats), since)
}
