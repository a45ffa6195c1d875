package redislock

import "time"

// checkInvariants: what is true of the keys after every script.
func (s *sequence) checkInvariants(o *outcome) {
	v := &o.after
	for _, ends := range []int64{v.stateEnds, v.queueEnds, v.waitersEnds, v.readersEnds} {
		if ends == noTTL {
			s.fail("a key has no TTL")
		}
	}
	if v.lockEnds == noTTL && !v.isForeign() {
		s.fail("the lock has no TTL")
	}
	if v.torn != "" || v.queueEnds != v.waitersEnds {
		s.fail("queue and waiters differ: %s", v.torn)
	}
	if v.queued != (len(v.queue) > 0) {
		s.fail("the state says %v to a queue of %d", v.queued, len(v.queue))
	}
	for _, p := range v.queue {
		if o.has(p) {
			s.fail("%s holds the lock and is queued", p.instance)
		}
	}
	if v.isShared() {
		s.checkReaders(o)
	}
	s.checkStretched(o)
}

// checkStretched: no waiter, and no caller that does not wait, leaves a lock behind that lasts longer than T.
func (s *sequence) checkStretched(o *outcome) {
	kind := readStanding(o.reply, time.Time{}).kind
	answered := (kind == hasPlace && !s.unfinished(o) || kind == heldByOther) && (o.kind == enterScript.Name || o.kind == heartbeatScript.Name)
	if answered && o.after.isStretched(o.now) {
		s.fail("the lock lasts for %d ms, longer than any lease", o.after.lockEnds-o.now)
	}
	if kind == hasPlace && !s.unfinished(o) && o.a.limit > 0 && o.after.isShared() && o.after.queue[0].instance == o.a.c.instance && !s.few {
		if last := o.after.readers[len(o.after.readers)-1].ends; last > o.now+o.after.longest() {
			s.fail("a holder that the head waits for lasts for %d ms, longer than any lease", last-o.now)
		}
	}
}

// checkReaders: the lock lasts as long as its last reader, and their list as long as the lock.
func (s *sequence) checkReaders(o *outcome) {
	v, last := &o.after, int64(noKey)
	for _, r := range v.readers {
		last = max(last, r.ends)
	}
	last = max(last, min(v.lockEnds, o.now+1))                                                              // that is how a lock is cut whose readers are dead
	cut := o.before.isStretched(o.now) && !v.isStretched(o.now) && v.lockEnds < o.before.lockEnds && !s.few // not so if it names a longer T now
	if s.stretched == v.value() && !cut {                                                                   // renewals have shortened shares, and a reader of a longer T has left
		last = v.lockEnds
	}
	if last != v.lockEnds || v.readersEnds < v.lockEnds {
		s.fail("the lock expires at %d, its last reader at %d, their list at %d", v.lockEnds, last, v.readersEnds)
	}
}

// checkBeliefs: what the clients believe is true, and no two of them exclude each other.
func (s *sequence) checkBeliefs(o *outcome) {
	var holder *simAttempt
	for _, a := range s.all {
		if a.deleted || !a.until.After(s.now) {
			continue
		}
		if o.after.ends(a.id) == noKey {
			s.fail("%s believes it holds the lock for another %v, and does not", a.id, a.until.Sub(s.now))
		}
		if holder != nil && !(holder.shared() && a.shared()) {
			s.fail("two holders: %s and %s", holder.id, a.id)
		}
		holder = a
	}
}
