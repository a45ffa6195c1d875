package redislock

import (
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

// outcome is one run of a script: what there was before and after it, and what it replied.
type outcome struct {
	execution
	a             *simAttempt // whose request it was
	kind, reply   string
	before, after keysView
	now           int64
	admitted      []*simAttempt // they hold the lock, and did not before
	skipped       int           // dead waiters that were removed from the queue
	cut           int           // holders whose share was cut to T
}

// ran takes what the server has answered: the reply and the view.
func (s *sequence) ran(e execution, reply, view string) {
	o := &outcome{execution: e, reply: reply, now: s.now.UnixMilli()}
	o.before, o.after = *s.view.at(o.now), readView(view)
	if e.request != nil && e.request.a != nil {
		s.since = o.before.silentSince(e.request.ttl(), o.now)
	}
	s.view = o.after
	if e.request == nil {
		s.note("foreigner: %v", e.commands)
		s.ranByForeigner(o)
		return
	}
	o.a, o.kind = e.request.a, e.request.kind()
	if s.trace != nil {
		s.traceRun(o, view)
	}
	o.a.arrived = true
	o.a.c.arrived = max(o.a.c.arrived, o.a.number)
	s.checkHolders(o)
	s.checkQueue(o)
	s.checkFences(o)
	s.checkReply(o)
	s.checkMessages(o)
	s.checkInvariants(o)
	if e.repeat {
		s.checkRepeat(o)
	}
	s.reply, s.cut = reply, s.few && max(o.skipped, o.cut, len(o.admitted)) >= fewMost
	if o.kind == leaveScript.Name && o.a.ended == 0 {
		o.a.ended = o.now
	}
	if e.client != nil {
		e.client.replied(e.request, reply, s.now)
	}
	s.hear(o)
	s.checkBeliefs(o)
}

func (s *sequence) traceRun(o *outcome, view string) {
	way := ""
	switch {
	case o.repeat:
		way = " (again)"
	case o.client == nil:
		way = " (nobody reads the reply)"
	}
	s.note("%v%s -> %q", o.request, way, o.reply)
	s.note("    %s", strings.ReplaceAll(view, "\n", " | "))
	for _, m := range o.after.pushed {
		s.note("    %s: %q", m.channel, m.text)
	}
}

// ranByForeigner notes whose lease a foreigner has deleted.
func (s *sequence) ranByForeigner(o *outcome) {
	for _, a := range s.all {
		if a.has && o.after.ends(a.id) == noKey {
			a.has, a.gone, a.deleted = false, true, true
		}
	}
	if o.after.isShared() && o.after.lockEnds > o.before.lockEnds {
		s.stretched = o.after.value()
	}
}

// checkHolders finds out who holds the lock and did not, or does no more, and that either was allowed.
func (s *sequence) checkHolders(o *outcome) {
	for _, a := range s.all {
		if !a.arrived {
			continue
		}
		had, has := o.before.ends(a.id), o.after.ends(a.id) != noKey
		if a.has && had == noKey {
			a.gone = true // expired
		}
		a.has = has
		switch {
		case had == noKey && has:
			o.admitted = append(o.admitted, a)
		case had == noKey || has:
		case (o.kind == leaveScript.Name || o.kind == releaseScript.Name) && o.a == a, o.kind == enterScript.Name && o.a.prev == a:
			a.released, a.byEnter = o.now, o.kind == enterScript.Name
		case o.breaks():
			a.gone, a.deleted = true, true // a message may tell its client; it must do without
		case had > o.now:
			s.fail("the lease of %s was taken away", a.id)
		default:
			a.gone = true // a reader whose time had passed
		}
		s.failIf(had != noKey && has && o.after.ends(a.id) < min(had, o.now+a.ttl.Milliseconds()), "the lease of %s was shortened", a.id)
		if had != noKey && has && o.after.ends(a.id) < had && (o.kind == enterScript.Name || o.kind == heartbeatScript.Name) {
			o.cut++
		}
	}
	s.failIf(s.few && max(o.cut, o.fromQueue()) > fewMost, "%d readers cut and %d waiters admitted at once", o.cut, o.fromQueue())
	s.failIf(o.before.isForeign() && (o.after.lock != o.before.lock || o.after.lockEnds != o.before.lockEnds), "a foreigner's lock was changed")
	for _, a := range o.admitted {
		s.checkAdmitted(o, a)
	}
	s.checkGap(o)
}

// checkGap: a lock that was released is left free for the gap.
func (s *sequence) checkGap(o *outcome) {
	if s.gap == 0 || o.kind == downgradeScript.Name || o.kind == breakScript.Name && !o.breaks() || o.before.isFree() || o.before.isForeign() || o.sameLock() {
		return
	}
	s.failIf(!o.after.isFree() || o.after.free != o.now+s.gap.Milliseconds(), "a released lock was not left free for the gap")
}

// checkAdmitted: a lock is granted to who asks or to who is queued, for a claim window, in the queue's order, and after the
// gap.
func (s *sequence) checkAdmitted(o *outcome, a *simAttempt) {
	rank := o.before.rank(a.c.instance, a.text)
	direct := o.a == a && o.kind == enterScript.Name
	s.failIf(rank < 0 && !direct, "%s was granted the lock, and neither asked nor waited", a.id)
	s.failIf(o.kind != enterScript.Name && o.kind != leaveScript.Name && o.kind != heartbeatScript.Name && o.kind != downgradeScript.Name && o.kind != breakScript.Name,
		"%s granted the lock to %s", o.kind, a.id)
	if want := o.now + a.window.Milliseconds(); o.after.ends(a.id) != want {
		s.fail("%s was granted the lock for %d ms", a.id, o.after.ends(a.id)-o.now)
	}
	joins := o.before.isShared() && o.sameLock() || o.kind == downgradeScript.Name
	s.failIf(joins && a.mode != distributed.Shared, "%s joined the readers", a.id)
	s.failIf(!joins && s.gap > 0 && s.resting(&o.after, o.now), "%s was granted the lock in the gap", a.id)
	if longest := o.after.longest(); longest != a.queuedTTL() && !(a.shared() && longest > a.queuedTTL()) {
		s.fail("%s was granted a lock that says T is %d ms", a.id, longest)
	}
	s.checkLimit(o, a, rank)
	s.checkTurn(o, a, rank)
}

// checkLimit: with an admitted attempt there are no more holders than its limit, without those that came after it.
func (s *sequence) checkLimit(o *outcome, a *simAttempt, rank int) {
	if a.limit == 0 || !o.after.isShared() {
		return
	}
	holders := o.after.living(o.now)
	for _, b := range o.admitted {
		if r := o.before.rank(b.c.instance, b.text); b != a && rank >= 0 && (r < 0 || r > rank) {
			holders--
		}
	}
	s.failIf(holders > a.limit, "%s is one of %d holders, and its limit is %d", a.id, holders, a.limit)
}

// resting reports that the lock is left free for foreigners.
func (s *sequence) resting(v *keysView, now int64) bool {
	return min(v.free, now+s.gap.Milliseconds()) > now
}

// checkTurn: those before an admitted waiter were admitted with it, or are dead; it is not dead itself while a waiter lives.
func (s *sequence) checkTurn(o *outcome, a *simAttempt, rank int) {
	ahead := o.before.queue
	if rank >= 0 {
		ahead = ahead[:rank]
	}
	for _, p := range ahead {
		s.failIf(p.instance != o.a.c.instance && !s.dead(p, o.now) && !o.has(p),
			"%s was granted the lock before %s, which is ahead of it", a.id, p.instance)
		s.failIf(o.after.rank(p.instance, p.attempt) >= 0 && p.instance != o.a.c.instance,
			"%s was granted the lock, and %s, which is dead, is still queued", a.id, p.instance)
	}
	if rank < 0 || o.a == a || !s.dead(o.before.queue[rank], o.now) {
		return
	}
	for _, p := range o.before.queue {
		s.failIf(p.instance != o.a.c.instance && !s.dead(p, o.now) && !o.has(p),
			"%s is dead and was granted the lock, though %s lives", a.id, p.instance)
	}
}

// has reports that this waiter holds the lock now.
func (o *outcome) has(p queuedPlace) bool {
	return o.after.ends(p.process+":"+p.attempt+":"+p.instance) != noKey
}

// dead reports that a waiter may be skipped, and is skipped when a living one can have the lock.
func (s *sequence) dead(p queuedPlace, now int64) bool {
	silence := now - max(p.beat, s.since)
	if s.single {
		return 3*(now-p.beat-100) > p.ttl && (silence > 2*p.ttl || !hears(p.process))
	}
	return 3*(silence-100) > p.ttl
}

// silentSince is from when on the silence of waiters counts: a server that has run no script for long was silent itself.
func (v *keysView) silentSince(ttl, now int64) int64 {
	if 3*(now-v.last-100) > min(ttl, 3000) || v.since > now {
		return now
	}
	return v.since
}

func hears(process string) bool { return strings.HasPrefix(process, liveProcess) }

// checkQueue: nobody vanishes from the queue, a new place is the last one, the others keep their order, and the lock is not
// free while somebody waits.
func (s *sequence) checkQueue(o *outcome) {
	next := 0
	for _, p := range o.before.queue {
		if i := o.after.rank(p.instance, p.attempt); i >= 0 {
			s.failIf(i != next, "%s is at place %d; want %d", p.instance, i, next)
			next++
			continue
		}
		own := p.instance == o.a.c.instance && (p.attempt == o.a.text || o.kind == enterScript.Name && p.number() < o.a.number)
		if own || o.has(p) {
			continue
		}
		if o.skipped++; !s.dead(p, o.now) {
			s.fail("%s has vanished from the queue", p.instance)
		}
	}
	s.failIf(s.few && o.skipped > fewMost, "%d dead waiters were skipped at once", o.skipped)
	for _, p := range o.after.queue[next:] {
		s.failIf(p.instance != o.a.c.instance || p.attempt != o.a.text || o.kind != enterScript.Name, "%s is queued and was not", p.instance)
	}
	if len(o.after.queue) > 0 && o.after.isFree() && !s.resting(&o.after, o.now) && o.serves() && !s.unfinished(o) {
		s.fail("the lock is free though %s waits", o.after.queue[0].instance)
	}
}

// unfinished reports that the script has skipped as many dead waiters as it may. The next heartbeat goes on.
func (s *sequence) unfinished(o *outcome) bool { return s.few && o.skipped == fewMost }

// serves reports that the script was to grant a free lock to the head of the queue.
func (o *outcome) serves() bool {
	switch word := words(o.reply).first(); o.kind {
	case enterScript.Name:
		return !strings.HasSuffix(o.reply, "old")
	case heartbeatScript.Name:
		return word != "gone"
	case leaveScript.Name:
		return word == "left" || word == "released" && o.before.ends(o.a.id) != noKey
	default:
		return false
	}
}

// checkRepeat: the same request at the same time gets the same answer and changes nothing.
func (s *sequence) checkRepeat(o *outcome) {
	if o.kind == enterScript.Name && o.a.mode == distributed.Shared && readStanding(s.reply, s.now).kind == heldByOther {
		return // and may join the readers it has let in: see checkRefused
	}
	if o.a.most > 0 && !o.full() && readStanding(s.reply, s.now).kind == heldByOther {
		return // and waits, since the run before has served the head of the full queue
	}
	if s.cut {
		return // and goes on
	}
	if o.kind == downgradeScript.Name && len(o.admitted) > 0 && s.dead(o.before.queue[0], o.now) {
		return // where all waiters look dead, each run lets in the head: see checkTurn
	}
	changes := o.kind == refillScript.Name || o.kind == downgradeScript.Name ||
		o.a.shared() && (o.kind == enterScript.Name || o.kind == heartbeatScript.Name)
	before := o.before
	if o.refuses() { // the state may say nothing of it any more, or there is another holder
		before.told, before.free = o.after.told, o.after.free
	}
	s.failIf(!o.after.equal(&before, !changes), "a repeat of %s has changed something", o.kind)
	s.failIf(!s.sameReply(o, changes), "the repeat of %s got %q after %q", o.kind, o.reply, s.reply)
}

func (s *sequence) sameReply(o *outcome, fences bool) bool {
	first := s.reply
	switch o.kind {
	case enterScript.Name, heartbeatScript.Name:
		a, b := readStanding(first, time.Time{}), readStanding(o.reply, time.Time{})
		if fences {
			a.grant.fence, b.grant.fence = 0, 0
		}
		return a == b
	case refillScript.Name, downgradeScript.Name:
		a, b := readRefill(first), readRefill(o.reply)
		a.grant.fence, b.grant.fence = 0, 0
		return a == b
	case leaveScript.Name:
		if (first == "released" || first == "left") && o.reply == "over" { // which the Go side reads as done in the reply to a repeat
			return o.a.c.arrived > o.a.number
		}
		return first == o.reply || first == "left" && o.reply == "released" // it reads them alike
	case releaseScript.Name: // its client repeats it as leave
		return o.reply == otherReply
	default:
		return first == o.reply
	}
}

// hear gives the messages to the clients, or loses them.
func (s *sequence) hear(o *outcome) {
	if o.luck%4 == 3 && s.drainUntil.IsZero() {
		return
	}
	for _, p := range o.after.pushed {
		m, ok := readMessage(p.text)
		s.failIf(!ok, "message %q cannot be read", p.text)
		for _, c := range s.clients {
			if m.kind == grantMessage && c.channel(s.key) == p.channel && c.now != nil && m.attempt == simID(c.now.number) {
				c.receive(m.grant, s.now)
			}
		}
	}
}

// checkInvariants: what is true of the keys after every script.
func (s *sequence) checkInvariants(o *outcome) {
	v := &o.after
	for _, ends := range []int64{v.stateEnds, v.queueEnds, v.waitersEnds, v.readersEnds} {
		s.failIf(ends == noTTL, "a key has no TTL")
	}
	s.failIf(v.lockEnds == noTTL && !v.isForeign(), "the lock has no TTL")
	s.failIf(v.torn != "" || v.queueEnds != v.waitersEnds, "queue and waiters differ: %s", v.torn)
	s.failIf(v.queued != (len(v.queue) > 0), "the state says %v to a queue of %d", v.queued, len(v.queue))
	for _, p := range v.queue {
		s.failIf(o.has(p), "%s holds the lock and is queued", p.instance)
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
	s.failIf(answered && o.after.isStretched(o.now), "the lock lasts for %d ms, longer than any lease", o.after.lockEnds-o.now)
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
	s.failIf(last != v.lockEnds || v.readersEnds < v.lockEnds,
		"the lock expires at %d, its last reader at %d, their list at %d", v.lockEnds, last, v.readersEnds)
}

// checkBeliefs: what the clients believe is true, and no two of them exclude each other.
func (s *sequence) checkBeliefs(o *outcome) {
	var holder *simAttempt
	for _, a := range s.all {
		if a.deleted || !a.until.After(s.now) {
			continue
		}
		s.failIf(o.after.ends(a.id) == noKey, "%s believes it holds the lock for another %v, and does not", a.id, a.until.Sub(s.now))
		if holder != nil && !(holder.shared() && a.shared()) {
			s.fail("two holders: %s and %s", holder.id, a.id)
		}
		holder = a
	}
}
