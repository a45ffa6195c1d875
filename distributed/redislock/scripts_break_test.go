package redislock

import (
	"strconv"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// breakIt has somebody who is no client end the lock by force, as it is now or as it is not any more.
func (s *sequence) breakIt(view *keysView, st step) []execution {
	s.made++
	c := &simClient{process: &sender{process: "breaker" + strconv.Itoa(s.made), gap: s.gap}, instance: breaker}
	c.process.single.Store(s.single)
	found := view.lock
	if view.isShared() {
		found = prefix + "s:" + view.value()
	}
	if st.luck%8 == 7 { // others have it by now
		found = found[:len(found)-1] + string('0'+(found[len(found)-1]-'0'+1)%10)
	}
	a := &simAttempt{c: c, number: 1, text: simID(1).String(), ttl: conn.OrphanTTL, window: distributed.ClaimWindow(conn.OrphanTTL)}
	a.id = c.process.process + ":" + a.text + ":" + breaker
	return []execution{{request: &simRequest{a: a, call: c.process.breaks(s.key, simID(1), found, "{}"), sent: s.now}, luck: st.fate}}
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
	if o.breaks() != (found == now) {
		s.fail("break of %q replied %q", found, o.reply)
	}
	if !o.breaks() {
		if o.reply != "other" || o.before.lock != o.after.lock || len(o.before.queue) != len(o.after.queue) {
			s.fail("break replied %q and changed the lock", o.reply)
		}
		return
	}
	if !o.after.isFree() && o.before.value() >= o.after.value() {
		s.fail("after a break, the fence is %s, and it was %s", o.after.value(), o.before.value())
	}
	w := words(strings.TrimPrefix(o.reply, "broken "))
	fence := w.next()
	if fence <= o.before.value() || !o.after.isFree() && fence >= o.after.value() {
		s.fail("a break skipped the fence %s, between %s and %s", fence, o.before.value(), o.after.value())
	}
	if len(o.after.queue) > 0 && o.after.isFree() && s.gap == 0 && !s.unfinished(o) {
		s.fail("after a break, the lock is free, and somebody is queued")
	}
}
