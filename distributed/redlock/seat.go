package redlock

import "time"

// seat is what a bid knows of itself on one server. Its fields are guarded by bid.mu.
type seat struct {
	vote
	standing standing // the last; kind 0: none yet
	err      error    // of the last question; nil: answered, or under way
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
