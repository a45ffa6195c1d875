package driver

import (
	"testing"

	"github.com/wllock/wllock/distributed/driver/internal/judge"
	"github.com/wllock/wllock/internal/race"
)

// What finds a mutant.
const (
	schedules = "^TestManySchedules$"
	renewals  = schedules + "/^renewals$"
	sessions  = "Session"
	races     = "^Test(ALane|ARequest|ARefusal|ADrop|Gone|AReleaseThat|Close|AMessage|Messages|AClaim|AGrant)"
)

// mutants are mistakes, each in one place of this package.
var mutants = []judge.Mutant{
	{"a grant that nobody has read is claimed", "lease.go", "if «!@ && »l.a.Unread() {", schedules},
	{"a grant that nobody has read is renewed", "lease.go", "case «!@ && »l.a.Unread():", schedules},
	{"a lease that is renewed is not looked at", "lease.go", "«if !@ || a.Lane.session != nil {\n\t\t»a.plan(s.Next)\n\t«}\n\t»return l", races},
	{"a late grant is not claimed", "renew.go", "return «!@ && »r != nil &&", schedules},
	{"a grant that is pushed lasts from its receipt", "attempt.go", "s.Sent = a.since\n«\t\tif @ {\n\t\t\ts.Sent = time.Now()\n\t\t}\n»", schedules},
	{"a grant outlives its session", "lease.go",
		"«if »until = earlier(until, session.Until())«; @ {\n\t\t\tuntil = s.Sent.Add(2 * a.TTL)\n\t\t}»", schedules},
	{"a lease is renewed by itself", "lease.go", "until := l.a.Lane.session.Until()«\n\tif @ {\n\t\tuntil = now.Add(l.a.TTL)\n\t}»", schedules},
	{"a lease that was lost stays", "lease.go",
		"a.state, a.tried = ending, true\n\t\ta.mu.Unlock()\n\t\t«if a.quit(); !@ {\n\t\t\t»a.drop()«\n\t\t}»\n\t}\n}", schedules},
	{"a waiter that has left is granted the lock", "attempt.go",
		"case «(»a.state == waiting« || @ && a.lease == nil)» && s.Kind == Granted:", schedules},
	{"a place that is gone is waited for", "attempt.go", "if «!@ && »a.lose(a.Lane.session != nil) {", schedules},
	{"the channel is closed after Leave", "attempt.go",
		"if !a.waits() «&& !(@ && a.state == dropping && a.granted != nil) »{\n\t\treturn false", schedules},
	{"waiters are not told of the end of the session", "attempt.go",
		"‹if l, _ := a.cut(); l != nil {›«l := a.lease\n\tif !@ {\n\t\tl, _ = a.cut()\n\t}\n\tif l != nil {»", sessions},
	{"Close leaves those that wait", "backend.go", "\t\t\t«if !@ {\n\t\t\t\t»a.close()«\n\t\t\t}»\n", races},
	{"an Enter that was not answered leaves what it has left", "attempt.go",
		"a.mu.Unlock()\n\t\t«if @ {\n\t\t\ta.forget()\n\t\t} else {\n\t\t\t»a.drop()«\n\t\t}»\n\t\tif a.granted", schedules},
	{"an Enter that has failed leaves the lease before", "lease.go", "a.mu.Unlock()\n\t\t«if !@ {\n\t\t\t»a.Lane.push(a)«\n\t\t}»", schedules},
	{"a Drop is sent beside the Enter that has adopted the lease", "drop.go", "return «@ || »a.state == dropping\n}", schedules},
	{"a Drop that comes after the Enter is the answer", "drop.go", "case «!@ && »a.state == adopted && found == Missing:", races},
	{"a lease that was removed by the first try was lost", "drop.go", "found == Missing && «(@ || »!a.tried«)»", schedules},
	{"a Drop that was not answered is given up", "lane.go",
		"‹next = false\n\t\t\t›«if next = false; !@ {\n\t\t\t\t»ln.enqueue(a, &ln.queue)«\n\t\t\t}»", schedules},
	{"a Drop that was not answered is not sent after a pause", "lane.go", "«if !@ {\n\t\t»ln.pause(paused)«\n\t}»", renewals},
	{"a claim that was not answered leaves what it has left", "attempt.go", "a.lose(!«@ && !»errors.Is(err, distributed.ErrLeaseLost))", races},
	{"a grant that is quicker than the answer to Enter is forgotten", "attempt.go", "if «!@ && »a.early != nil {", races},
	{"a message that comes late is a grant", "attempt.go", "if «!@ && »late && s.Pushed {", races},
	{"a refused Drop keeps Close waiting", "drop.go", "&& !(«!@ && »a.refused && a.b.Closed())", races},
	{"a message puts a look off", "look.go", "|| «!@ && »a.next.After(now) &&", races},
	{"a message hides a waiter from an answer", "attempt.go", "if «!@ && »waits || !newer {", races},
	{"a refusal that comes before the grant is forgotten", "attempt.go", "s.Wanted || «!@ && »a.wanted", races},
	{"a look that was not answered is the last", "look.go", "case !«@ && !»a.told:\n", schedules},
	{"a session is ended beside a request", "lane.go", "unused := «@ || »len(ln.attempts) == 0 && ln.idle()", sessions},
	{"a session is ended of which something is to be removed", "attempt.go",
		"if «@ {\n\t\ta.Lane.forget(a)\n\t}\n\tif »first {\n\t\ta.b.driver", races},
	{"a request fails whose session has ended before it", "backend.go", "if «@ || »!errors.Is(err, ErrOver) ||", races},
	{"a caller that has gone leaves what its request brings", "attempt.go",
		"«if »a.state = cutOff«; @ {\n\t\t\ta.state = asking\n\t\t\treturn a.why, true\n\t\t}»\n\t}\n\treturn a.why, a.state == cutOff", renewals},
	{"a request that has its answer is cut off", "attempt.go", "return a.why, «@ || »a.state == cutOff\n}", races},
	{"what a request without its caller brings is dropped before its answer", "backend.go",
		"if why, leaves := a.leaves(); leaves {«\n\t\t\tif @ {\n\t\t\t\ta.entered(Standing{}, ErrOver)\n\t\t\t}»", races},
	{"the lease before belongs to a caller that goes", "backend.go",
		"leaves := a.leaves(); leaves {\n«\t\t\tif @ {\n\t\t\t\ta.settled()\n\t\t\t}\n»", races},
	{"looks do not gather", "look.go", "for «!@ && »q.b.set.Looks > 0 &&", races},
	{"a Look is larger than the driver wants", "look.go", "«(@ || »len(some)+len(q.queue[0]) <= q.b.set.LookMost«)»", races},
	{"a release without time is sent by its caller", "lane.go", "here :=« (@ ||» ctx.Err() == nil«)» &&", races},
	{"a Drop that is queued is queued again", "lane.go", "if !gone && «(@ || »!a.queued«)» {", races},
	{"Close does not wait for an Enter", "lane.go", "return« (@ ||» ln.asks == 0«)» &&", races},
	{"a lease that has gone before the answer to Enter is held", "attempt.go", "if «!@ && »gone { // it was granted", races},
	{"a place that has gone before the answer to Enter is waited for", "attempt.go", "«!@ && »a.gone { // it had a place", races},
	{"a message before the grant is forgotten", "attempt.go", "if «!@ && »a.events && !a.looking { // one", races},
	{"a message during the look that finds the grant is forgotten", "attempt.go",
		"\t«if »a.state = held«; @ && a.looking {\n\t\ta.events = false\n\t}»\n\ts.Contended", races},
	{"nobody waits for a Drop after a silence", "drop.go",
		"«if @ {\n\t\treturn time.Until(a.ends())\n\t}\n\t»return max(time.Until(a.ends()), a.Window)", races},
	{"a Drop is given up when the lease ends here", "drop.go",
		"«if @ {\n\t\t\treturn a.lease.Until()\n\t\t}\n\t\t»return a.heard.Add(a.Lasts)", renewals},
	{"a place is given up when it ends as far as its answers say", "drop.go",
		"«if @ {\n\t\treturn a.since.Add(a.Window + a.TTL)\n\t}\n\t»return a.heard.Add(a.Window + a.TTL)", renewals},
	{"a Detach that has failed leaves the detached lease", "transfer.go", "\t\t\t«if !@ {\n\t\t\t\t»d.drop()«\n\t\t\t}»\n", renewals},
	{"a Detach that has failed leaves the lease", "transfer.go", "\t\t«if !@ {\n\t\t\t»p.GiveUp()«\n\t\t}»\n", renewals},
	{"there are too many sessions", "sessions.go", "case «!@ && »there >= p.rules.Own && below != nil:", sessions},
	{"nobody makes room for a session", "sessions.go", "\t\t«if !@ {\n\t\t\t»p.makeRoom(c.Kind)«\n\t\t}»\n", sessions},
	{"the session of questions makes room", "sessions.go",
		"others := slices.Clone(p.all[p.oldest(kind)+1:])«\n\tif @ {\n\t\tothers = slices.Clone(p.all)\n\t}»", sessions},
	{"the session with the shortest TTL makes room", "sessions.go",
		"cmp.Compare(b.task().TTL, a.task().TTL) })\n«\tif @ {\n\t\tslices.Reverse(others)\n\t}\n»", sessions},
	{"a session is ended at the service while leases are held", "sessions.go", "s.End(«!@ && »t.Lane.holds())", schedules},
	{"a session that has expired is found again", "sessions.go", "\t\t«if !@ {\n\t\t\t»t.forget(t)«\n\t\t}»\n", sessions},
	{"Close does not wait for what is being dropped", "sessions.go", "«if !@ {\n\t\t\t\t\t»t.Lane.Flush(closeGrace)«\n\t\t\t\t}»", sessions},
	{"an old failure is the answer of a session", "sessions.go", "why != nil && «(@ || »t.tries > before«)»", sessions},
}

// TestMutantsAreFound breaks this package in one place after the other, and has its tests find that.
func TestMutantsAreFound(t *testing.T) {
	race.Skip(t, "it compiles the package anew")
	judge.Find(t, mutants)
}
