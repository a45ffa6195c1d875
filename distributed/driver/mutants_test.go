package driver

import (
	"testing"

	"github.com/wllock/wllock/distributed/driver/internal/judge"
	"github.com/wllock/wllock/internal/race"
)

// mutants are mistakes, each in one line of this package, that TestManySchedules or the tests of sessions have to find.
var mutants = []judge.Mutant{
	{"a grant that nobody has read is claimed", "lease.go", "if l.a.Unread() ||", "if"},
	{"a grant that nobody has read is renewed", "lease.go", "case l.a.Unread():", "case false:"},
	{"a late grant is not claimed", "renew.go", "return r != nil &&", "return false &&"},
	{"a grant that is pushed lasts from its receipt", "attempt.go", "s.Sent = a.since\n", "s.Sent = time.Now()\n"},
	{"a Drop that comes after the Enter is the answer", "drop.go", "case a.state == adopted && found == Missing:", "case false:"},
	{"a Drop that was not answered is not sent after a pause", "lane.go", "ln.pause(paused)", ""},
	{"a Drop is sent beside the Enter that has adopted the lease", "drop.go", "return a.state == dropping\n}", "return true\n}"},
	{"an Enter that was not answered leaves what it has left", "attempt.go", "a.mu.Unlock()\n\t\ta.drop()\n\t\tif a.granted", "a.mu.Unlock()\n\t\ta.quit()\n\t\tif a.granted"},
	{"the channel is closed after Leave", "attempt.go", "if !a.waits() {\n\t\treturn false", "if !a.waits() && a.state != dropping {\n\t\treturn false"},
	{"a Drop that was not answered is given up", "lane.go", "next = false\n\t\t\tln.enqueue(a, &ln.queue)", "next = false"},
	{"waiters are not told of the end of the session", "attempt.go", "if l, _ := a.cut(); l != nil {", "if l := a.lease; l != nil {"},
	{"a lease that was lost stays", "lease.go", "a.state, a.tried = ending, true\n\t\ta.mu.Unlock()\n\t\ta.drop()\n\t}\n}", "a.mu.Unlock()\n\t\ta.quit()\n\t}\n}"},
	{"a lease is renewed by itself", "lease.go", "until := l.a.Lane.session.Until()", "until := now.Add(l.a.TTL)"},
	{"an Enter that has failed leaves the lease before", "lease.go", "a.mu.Unlock()\n\t\ta.Lane.push(a)", "a.mu.Unlock()"},
	{"a lease that was removed by the first try was lost", "drop.go", "found == Missing && !a.tried", "found == Missing"},
	{"a waiter that has left is granted the lock", "attempt.go", "case a.state == waiting && s.Kind == Granted:", "case a.lease == nil && s.Kind == Granted:"},
	{"a grant outlives its session", "lease.go", "until = earlier(until, session.Until())", "until = s.Sent.Add(2 * a.TTL)"},
	{"a place that is gone is waited for", "attempt.go", "if a.lose(a.Lane.session != nil) {", "if false {"},
	{"Close leaves those that wait", "backend.go", "a.close()", "_ = a"},
	{"a session is ended beside a request", "lane.go", "unused := len(ln.attempts) == 0 && ln.idle()", "unused := true"},
	{"there are too many sessions", "sessions.go", "case there >= p.rules.Own && below != nil:", "case false:"},
	{"nobody makes room for a session", "sessions.go", "		p.makeRoom(c.Kind)\n", ""},
	{"the session of questions makes room", "sessions.go", "p.oldest(kind)+1", "p.oldest(kind)"},
	{"the session with the shortest TTL makes room", "sessions.go", "cmp.Compare(b.task().TTL, a.task().TTL)", "cmp.Compare(a.task().TTL, b.task().TTL)"},
	{"a session is ended of which something is to be removed", "attempt.go", "if first {\n\t\ta.b.driver", "a.Lane.forget(a)\n\tif first {\n\t\ta.b.driver"},
	{"Close does not wait for an Enter", "lane.go", "return ln.asks == 0 &&", "return"},
	{"what is said before the answer to Enter is forgotten", "attempt.go", "a.events = true // before", "// before"},
	{"a session is ended at the service while leases are held", "sessions.go", "s.End(t.Lane.Holds())", "s.End(false)"},
	{"a session that has expired is found again", "sessions.go", "		t.forget(t)\n", ""},
	{"Close does not wait for what is being dropped", "sessions.go", "t.Lane.Flush(closeGrace)", "_ = closeGrace"},
	{"an old failure is the answer of a session", "sessions.go", "why != nil && t.tries > before", "why != nil"},
	{"a look that was not answered is the last", "look.go", "case !a.told:\n\t\ta.plan(0)", ""},
}

// TestMutantsAreFound breaks this package in a line, and has them find it: five lines each time, all with WLLOCK_LONG=1.
func TestMutantsAreFound(t *testing.T) {
	race.Skip(t, "it compiles the package anew")
	judge.Find(t, mutants, "^Test(ManySchedules|Session)")
}
