package redislock

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// checkFences: each is above all that were reserved before and not below the clock, and the state's never falls.
func (s *sequence) checkFences(o *outcome) {
	for _, a := range o.admitted {
		if a.mode == distributed.Exclusive {
			s.checkFence(o, o.after.value(), 1)
		}
	}
	switch o.kind {
	case refillScript.Name, downgradeScript.Name:
		if r := readRefill(o.reply); r.held {
			s.checkFence(o, string(appendFence(nil, r.grant.fence)), r.grant.count)
		}
	case enterScript.Name, heartbeatScript.Name:
		r := readStanding(o.reply, s.now)
		if fence := string(appendFence(nil, r.grant.fence)); r.kind == hasLease && o.after.isShared() {
			s.checkFence(o, fence, r.grant.count)
		} else if r.kind == hasLease {
			s.checkBlock(o, r.grant)
		}
	}
	s.failIf(o.after.fence < s.top, "the state's fence fell from %q to %q", s.top, o.after.fence)
	s.top = o.after.fence
}

// checkBlock: the fences of an exclusive grant are those in the lock, and reserved.
func (s *sequence) checkBlock(o *outcome, g grant) {
	last := string(appendFence(nil, g.fence+g.count-1))
	if first := string(appendFence(nil, g.fence)); first != o.after.value() || last > o.after.fence {
		s.fail("granted fences from %s to %s; the lock has %s, the state %s", first, last, o.after.value(), o.after.fence)
	}
}

func (s *sequence) checkFence(o *outcome, fence string, count uint64) {
	clock := string(appendFence(nil, uint64(s.now.UnixNano())))
	last := string(appendFence(nil, parseFence(fence)+count-1))
	s.failIf(len(fence) != fenceDigits || fence <= s.top || fence < clock || last > o.after.fence,
		"fence %s and %d more after %q, at %s, with %q reserved", fence, count-1, s.top, clock, o.after.fence)
}

// checkMessages: a grant to a waiter is announced to it, holders are notified of the first waiter, that the last has left, and once that
// a caller was refused, and the head of the queue of the gap. Nothing else is published but the question whether a waiter lives.
func (s *sequence) checkMessages(o *outcome) {
	s.failIf(o.after.told && len(o.admitted) > 0, "a new holder counts as told of a refusal")
	got := make(map[string]int)
	for _, p := range o.after.pushed {
		m, ok := readMessage(p.text)
		s.failIf(!ok, "message %q cannot be read", p.text)
		got[fmt.Sprint(m.kind, " ", p.channel, " ", m.attempt)]++
		if m.kind == grantMessage {
			s.checkGrantMessage(o, p, m)
		} else if m.kind != checkMessage && m.kind != o.toHolders() && !(m.kind == lostMessage && o.breaks()) {
			s.fail("message %q", p.text)
		}
	}
	system := conn.SystemOf(s.key)
	want := func(kind, process string, attempt any) {
		if key := fmt.Sprint(kind, " ", channelOf(system, process), " ", attempt); hears(process) && got[key] != 1 && (kind != checkMessage || got[key] == 0) {
			s.fail("%d messages %s; want 1", got[key], key)
		}
	}
	for _, a := range o.admitted {
		if o.before.rank(a.c.instance, a.text) >= 0 {
			want(grantMessage, a.c.process.process, simID(a.number))
		}
	}
	if news := o.toHolders(); news != "" {
		holders := o.after.holders()
		if s.few { // the others renew sooner
			holders = holders[max(0, len(holders)-fewMost):]
		}
		for _, id := range holders {
			process, rest, _ := strings.Cut(id, ":")
			attempt, _, _ := strings.Cut(rest, ":")
			want(news, process, attempt)
			delete(got, fmt.Sprint(news, " ", channelOf(system, process), " ", attempt))
		}
		for key := range got {
			s.failIf(s.few && strings.HasPrefix(key, news), "message %s to one reader more", key)
		}
	}
	if len(o.after.queue) == 0 {
		return
	}
	first, last := o.after.queue[0], o.after.queue[len(o.after.queue)-1]
	sooner := o.after.isShared() && o.sameLock() && o.after.lockEnds < o.before.lockEnds && !o.before.isStretched(o.now)
	leftInGap := o.kind == leaveScript.Name && o.reply == "left" && o.after.isFree() && s.resting(&o.after, o.now)
	if o.after.free > o.before.free || leftInGap || sooner || s.few && o.fromQueue() == fewMost {
		want(checkMessage, first.process, first.attempt)
	}
	if s.unfinished(o) && o.after.isFree() && o.serves() && o.after.rank(o.a.c.instance, o.a.text) < 0 {
		want(checkMessage, last.process, last.attempt)
	}
}

// fromQueue is how many waiters were admitted.
func (o *outcome) fromQueue() (n int) {
	for _, a := range o.admitted {
		if o.before.rank(a.c.instance, a.text) >= 0 {
			n++
		}
	}
	return n
}

// sameLock reports that the owner is the same, or that readers have joined readers.
func (o *outcome) sameLock() bool {
	return o.before.lock == o.after.lock || o.before.isShared() && o.after.isShared() && o.before.value() == o.after.value()
}

// toHolders is the kind of message that the holders are to get, or "".
func (o *outcome) toHolders() string {
	switch {
	case o.firstWaits():
		return contendedMessage
	case o.refuses() && !o.before.told:
		return refusedMessage
	case o.joinsLast():
		return uncontendedMessage
	case o.kind == leaveScript.Name && o.reply == "left" && len(o.after.queue) == 0 && !o.before.isFree():
		return uncontendedMessage
	case o.moves() && o.before.isShared() && o.sameLock() && len(o.after.queue) == 0:
		return uncontendedMessage
	default:
		return ""
	}
}

// joinsLast reports that the last waiters have joined readers.
func (o *outcome) joinsLast() bool {
	return len(o.before.queue) > 0 && len(o.after.queue) == 0 && o.before.isShared() && o.sameLock() && len(o.admitted) > 0 &&
		(o.kind == heartbeatScript.Name || o.kind == leaveScript.Name || o.kind == enterScript.Name)
}

// moves reports that an enter has left the place of an earlier attempt.
func (o *outcome) moves() bool {
	if o.kind != enterScript.Name || o.a.nowait || readStanding(o.reply, time.Time{}).kind == outdated {
		return false
	}
	i := slices.IndexFunc(o.before.queue, func(p queuedPlace) bool { return p.instance == o.a.c.instance })
	return i >= 0 && o.before.queue[i].number() < o.a.number // else a copy comes late
}

// firstWaits reports that an enter found the lock held and nobody queued.
func (o *outcome) firstWaits() bool {
	if o.kind != enterScript.Name || readStanding(o.reply, time.Time{}).kind != hasPlace || !o.sameLock() {
		return false
	}
	others := slices.ContainsFunc(o.before.queue, func(p queuedPlace) bool { return p.instance != o.a.c.instance })
	return !others && o.before.rank(o.a.c.instance, o.a.text) < 0
}

// full reports that an enter, which has no place yet, finds as many queued as it waits behind at most.
func (o *outcome) full() bool {
	return o.a.most > 0 && len(o.before.queue) >= o.a.most &&
		!slices.ContainsFunc(o.before.queue, func(p queuedPlace) bool { return p.instance == o.a.c.instance })
}

// refuses reports that a caller that would not wait found the lock held and nobody queued.
func (o *outcome) refuses() bool {
	return o.kind == enterScript.Name && o.a.nowait && readStanding(o.reply, time.Time{}).kind == heldByOther && o.sameLock() &&
		len(o.after.queue) == 0 && o.fromQueue() == 0 && strings.HasPrefix(o.before.lock, prefix)
}

func (s *sequence) checkGrantMessage(o *outcome, p pushedMessage, m message) {
	for _, a := range o.admitted {
		if m.attempt == simID(a.number) && p.channel == a.c.channel(s.key) {
			if m.key != s.key || m.mode != a.mode || m.instance != a.c.instance || m.grant.contended != (len(o.after.queue) > 0) ||
				string(appendFence(nil, m.grant.fence)) <= o.before.fence {
				s.fail("message %q", p.text)
			}
			if m.mode == distributed.Exclusive {
				s.checkBlock(o, m.grant)
			} else if m.grant.fence+m.grant.count-1 > parseFence(o.after.fence) || (m.grant.count > 1) != (a.limit > 0) {
				s.fail("message %q: fences that are not reserved", p.text)
			}
			return
		}
	}
	s.fail("message %q without a grant", p.text)
}
