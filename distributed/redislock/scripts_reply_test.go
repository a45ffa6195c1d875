package redislock

import (
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

// checkReply holds the reply to what has happened.
func (s *sequence) checkReply(o *outcome) {
	switch o.kind {
	case enterScript.Name:
		s.checkEntered(o, readStanding(o.reply, s.now))
	case heartbeatScript.Name:
		s.checkBeaten(o, readStanding(o.reply, s.now))
	case leaveScript.Name:
		s.checkLeft(o)
	case releaseScript.Name:
		s.checkReleased(o)
	case renewScript.Name:
		s.checkRenewed(o, o.a, readRenew(o.reply))
	case renewOneScript.Name: // which does not look for contention
		r := readRenew(o.reply)
		s.checkRenewed(o, o.a, renewReply{r.held, len(o.after.queue) > 0})
	case renewAllScript.Name:
		s.checkRenewed(o, o.a, readRenewAll(o.reply, 0))
		s.checkRenewed(o, o.request.other, readRenewAll(o.reply, 1))
	case downgradeScript.Name:
		r := readRefill(o.reply)
		s.checkRenewed(o, o.a, renewReply{r.held, r.grant.contended})
		s.failIf(r.held && !o.after.isShared(), "a downgraded lease is exclusive")
		s.checkReadersEntered(o, r.held)
	case breakScript.Name:
		s.checkBroken(o)
	case refillScript.Name:
		r := readRefill(o.reply)
		s.checkContended(o, r.held, r.grant.contended)
		if has := o.before.ends(o.a.id) != noKey; r.held != has {
			s.fail("refill replied %q", o.reply)
		}
	}
}

// checkReadersEntered: no reader that lives is at the head after a downgrade, or when a place before it was left.
func (s *sequence) checkReadersEntered(o *outcome, held bool) {
	if s.unfinished(o) || s.few && len(o.admitted) >= fewMost {
		return // the next heartbeat goes on
	}
	if !held || len(o.after.queue) == 0 {
		return
	}
	if head := o.after.queue[0]; head.mode == "s" && o.after.room(head.limit, o.now) && !s.dead(head, o.now) {
		s.fail("%s waits at the head, beside readers", o.after.queue[0].instance)
	}
}

func (s *sequence) checkEntered(o *outcome, r standing) {
	if o.a.prev != nil && !o.a.doubted && r.kind != outdated {
		s.checkPrev(o, o.a.prev, r.prevLost)
	}
	s.checkReadersEntered(o, o.after.isShared() && (o.moves() || o.partsFrom(o.a.prev)))
	has, rank := o.after.ends(o.a.id) != noKey, o.after.rank(o.a.c.instance, o.a.text)
	s.failIf((r.kind == hasLease) != (has && r.kind != outdated) || (r.kind == hasPlace) != (rank >= 0 && r.kind != outdated),
		"enter replied %q", o.reply)
	s.failIf(o.a.ended != 0 && o.now <= o.a.ended+o.a.past() && r.kind != outdated, "an attempt that has ended entered")
	switch r.kind {
	case hasLease:
		s.checkContended(o, true, r.grant.contended)
		s.checkWindow(o)
	case hasPlace:
		s.checkPosition(o, r.position, rank)
		s.failIf(o.full(), "an enter has a place in a full queue")
	case heldByOther:
		s.failIf(!o.a.nowait && !o.full(), "an enter that would wait was refused")
		s.checkRefused(o)
	case outdated:
		s.failIf(o.a == o.client.current(), "the latest attempt is outdated")
		s.checkUntouched(o)
	default:
		s.fail("enter replied %q", o.reply)
	}
}

// current is the attempt that has not been followed, or given up, by its client.
func (c *simClient) current() *simAttempt {
	if c == nil {
		return nil
	}
	return c.now
}

// past is for how long an attempt that has ended is remembered.
func (a *simAttempt) past() int64 { return max(10_000, 2*a.ttl.Milliseconds()) }

// checkRefused: there was something in the way of an enter that does not wait.
func (s *sequence) checkRefused(o *outcome) {
	s.failIf(o.after.isFree() && len(o.after.queue) == 0 && !s.resting(&o.after, o.now), "an enter was refused a free lock")
	if o.a.mode == distributed.Shared && o.after.isShared() && len(o.after.queue) == 0 && o.after.room(o.a.limit, o.now) {
		s.tolerate(refusedReader)
	}
}

// checkPrev: "lost" says that the lease to be released had been lost, not that it was released before.
func (s *sequence) checkPrev(o *outcome, prev *simAttempt, lost bool) {
	switch {
	case lost && prev.released != 0 && !o.repeat: // a repeat gets the first answer, see checkRepeat
		s.falselyLost(o, prev)
	case !lost && prev.released == 0:
		s.fail("enter does not say that %s was lost", prev.id)
	}
}

// falselyLost: a lease that was released is said to have been lost. This may happen once its release is forgotten.
func (s *sequence) falselyLost(o *outcome, a *simAttempt) {
	switch {
	case a.parted: // its client does not believe it
	case o.now > a.released+a.past():
		s.tolerate(forgotten)
	case a.byEnter && (o.now > a.released || !slices.Contains(o.before.holders(), o.a.id)):
		s.tolerate(notNoted) // an enter sent again knows it from the lock that the first try has got
	default:
		s.fail("%s was released, and is said to have been lost", a.id)
	}
}

func (s *sequence) checkPosition(o *outcome, p position, rank int) {
	rest := o.after.lockEnds - o.now
	switch o.after.lockEnds {
	case noTTL:
		rest = noTTL
	case noKey:
		rest = max(o.after.free-o.now, 0)
	}
	if o.a.limit > 0 && rank == 0 && o.after.isShared() {
		rest = o.untilRoom(rest)
	}
	s.failIf(s.unfinished(o) && o.after.isFree() && p != (position{}),
		"place %d for %v, and the dead before it have not all been skipped", p.rank, p.rest)
	goesOn := s.unfinished(o) && p == position{}
	s.failIf(!goesOn && (p.rank != int64(rank) || p.rest != time.Duration(rest)*time.Millisecond),
		"place %d for %v; want %d, %d ms", p.rank, p.rest, rank, rest)
	// A key of another type is noticed by an attempt to set it only, which is not made in the gap.
	s.failIf(p.foreign != o.after.isForeign() && !goesOn && !(o.after.lock == "" && s.resting(&o.after, o.now)), "place with foreign %v", p.foreign)
	if i := o.after.queue[rank]; i.beat != o.now || i.ttl != o.a.queuedTTL() || i.process != o.a.c.process.process {
		s.fail("the place is not refreshed: %v", i)
	}
}

// untilRoom is when the head looks that waits for a permit.
func (o *outcome) untilRoom(rest int64) int64 {
	over := len(o.after.readers) - o.a.limit
	if over < 0 {
		return 0
	}
	return max(min(rest, o.after.readers[over].ends-o.now), 0)
}

// partsFrom reports that a holder has left others behind that share the lock, and waiters of which the first has a limit.
func (o *outcome) partsFrom(a *simAttempt) bool {
	return a != nil && o.before.isShared() && o.sameLock() && o.before.ends(a.id) != noKey && o.after.ends(a.id) == noKey &&
		len(o.before.queue) > 0 && o.before.queue[0].limit > 0
}

func (s *sequence) checkBeaten(o *outcome, r standing) {
	has, rank := o.after.ends(o.a.id) != noKey, o.after.rank(o.a.c.instance, o.a.text)
	switch r.kind {
	case hasLease:
		s.checkContended(o, true, r.grant.contended)
		s.checkWindow(o)
	case hasPlace:
		s.checkPosition(o, r.position, rank)
		s.checkReadersEntered(o, o.after.isShared() && rank == 0)
	case "gone":
		s.checkUntouched(o)
	default:
		s.fail("heartbeat replied %q", o.reply)
	}
	s.failIf(has != (r.kind == hasLease) || !has && (rank >= 0) != (r.kind == hasPlace), "heartbeat replied %q", o.reply)
}

// checkWindow: a grant that was found again lasts for a claim window at least.
func (s *sequence) checkWindow(o *outcome) {
	s.failIf(o.after.ends(o.a.id) < o.now+o.a.window.Milliseconds(), "a grant for less than the claim window")
}

func (s *sequence) checkLeft(o *outcome) {
	had, rank := o.before.ends(o.a.id) != noKey, o.before.rank(o.a.c.instance, o.a.text)
	s.failIf(o.after.ends(o.a.id) != noKey || o.after.rank(o.a.c.instance, o.a.text) >= 0, "the attempt has left, and is still there")
	s.failIf(had && o.reply != "released" || !had && rank >= 0 && o.reply != "left", "leave replied %q", o.reply)
	if rank >= 0 {
		o.a.leftAPlace = true
	}
	s.checkReadersEntered(o, o.partsFrom(o.a))
	switch o.reply {
	case "released":
		s.failIf(!had && o.a.released == 0 && !o.a.leftAPlace, "released what it did not have")
	case "left":
		s.failIf(rank < 0, "left a place it did not have")
	case "lost":
		if o.a.released != 0 {
			s.falselyLost(o, o.a)
		}
		s.checkUntouched(o)
	case "over":
		s.failIf(o.a.c.arrived <= o.a.number, "leave speaks of a later attempt: there is none")
		s.checkUntouched(o)
	default:
		s.fail("leave replied %q", o.reply)
	}
}

// checkReleased: a release ends the lease that it names, unless somebody waits for it.
func (s *sequence) checkReleased(o *outcome) {
	had, alone := o.before.ends(o.a.id) != noKey, len(o.before.queue) == 0 && !o.before.queued && o.before.fence != ""
	switch {
	case o.reply == otherReply:
		if had && alone && !o.before.isShared() {
			s.fail("a release has done nothing")
		}
		s.checkUntouched(o)
	case o.reply != "released" || !had || len(o.before.queue) > 0:
		s.fail("release replied %q, and had %v", o.reply, had)
	}
}

// checkUntouched: nothing was found, and nothing was done.
func (s *sequence) checkUntouched(o *outcome) {
	s.failIf(!o.after.equal(&o.before, true), "%s replied %q and has changed something", o.kind, o.reply)
}

func (s *sequence) checkRenewed(o *outcome, a *simAttempt, r renewReply) {
	has := o.before.ends(a.id) != noKey
	if (o.kind == renewAllScript.Name || o.kind == renewOneScript.Name) && a.asked && o.before.isShared() && has && !r.held {
		return // they know exclusive leases only, and their client does not believe them
	}
	s.failIf(r.held != has, "%s says of %s: held %v", o.kind, a.id, r.held)
	s.checkContended(o, r.held, r.contended)
	want := o.now + o.a.ttl.Milliseconds()
	if o.kind == downgradeScript.Name && o.before.isShared() { // a repeat, which shortens nothing
		want = max(want, o.before.ends(a.id))
	}
	s.failIf(r.held && o.after.ends(a.id) != want, "%s renewed %s for %d ms", o.kind, a.id, o.after.ends(a.id)-o.now)
}

func (s *sequence) checkContended(o *outcome, held, contended bool) {
	s.failIf(held && contended != (len(o.after.queue) > 0), "contended %v with a queue of %d", contended, len(o.after.queue))
}

// toleration is something that is not as it should be, and does little harm.
type toleration struct {
	what, why string
	perMille  int // of the sequences that may show it
}

var (
	refusedReader = &toleration{
		"a reader that does not wait is refused", "its enter lets in readers that wait, and does not join them: it may ask again", 20,
	}
	notNoted = &toleration{
		"a lease released by an enter is said to be lost",
		"the quick enter does not note the end of prev: the lock names a later attempt of its instance, until that has ended", 20,
	}
	forgotten = &toleration{"the release of a lease is forgotten", "what has ended is remembered for a time only", 5}
)

// tolerate notes that a sequence shows what is tolerated.
func (s *sequence) tolerate(what *toleration) {
	s.tolerated[what] = true
	s.note("tolerated: %s, since %s", what.what, what.why)
}

// breaks reports that the script has ended the leases of before.
func (o *outcome) breaks() bool {
	return o.kind == breakScript.Name && strings.HasPrefix(o.reply, "broken ")
}

// checkBroken: the leases are ended, or nothing is changed. No fence that is reserved later is as small as the one that is skipped,
// and none that was reserved before is as large.
func (s *sequence) checkBroken(o *outcome) {
	args := o.request.call.Args
	found, now := args[len(args)-3], o.before.lock
	if o.before.isShared() {
		now = prefix + "s:" + o.before.value()
	}
	s.failIf(o.breaks() != (found == now), "break of %q replied %q", found, o.reply)
	if !o.breaks() {
		s.failIf(o.reply != "other" || o.before.lock != o.after.lock || len(o.before.queue) != len(o.after.queue),
			"break replied %q and changed the lock", o.reply)
		return
	}
	s.failIf(!o.after.isFree() && o.before.value() >= o.after.value(),
		"after a break, the fence is %s, and it was %s", o.after.value(), o.before.value())
	w := words(strings.TrimPrefix(o.reply, "broken "))
	fence := w.next()
	s.failIf(fence <= o.before.value() || !o.after.isFree() && fence >= o.after.value(),
		"a break skipped the fence %s, between %s and %s", fence, o.before.value(), o.after.value())
	s.failIf(len(o.after.queue) > 0 && o.after.isFree() && s.gap == 0 && !s.unfinished(o), "after a break, the lock is free, and somebody is queued")
}
