package register

import (
	"testing"

	"github.com/wllock/wllock/distributed/driver/internal/judge"
	"github.com/wllock/wllock/internal/race"
)

// What finds a mutant.
const (
	schedules = "^TestManySchedules$"
	steps     = "^Test(A[A-Z]|Reap|What|No|Holders|Waiters)"
)

// mutants are mistakes, each in one place of this package.
var mutants = []judge.Mutant{
	{"a claim that is queued again looks like before", "half.go", "«if !@ {\n\t\t\t\t\t»w.Again++«\n\t\t\t\t}»", steps},
	{"a claim takes a later grant for its own", "half.go", "held = held && «(@ || »(a.Lease() != nil || l.Owners[i].Fence == w.fence)«)»", steps},
	{"what has gone is renewed", "half.go", "held = i >= 0 && «(@ || »!w.ended.Load()«)»", steps},
	{"a late request is let come", "half.go", "return found || «!@ && »unsure", steps},
	{"a refused claim that comes late stays", "half.go", "driver.Refused && w.unsure« && !@»", steps},
	{"a dropped claim that comes late stays", "half.go", "err == nil && w.unsure «&& !@ »{", steps},
	{"a predecessor's claim that comes late stays", "half.go", "if «!@ && »before.Wire.unsure", steps},
	{"an expired lease stays", "half.go", "l != nil && «!@ && »distributed.Over(", steps},
	{"a grant is as young as the look that finds it", "half.go", "!granted «|| @ »&& (news", schedules},
	{"a look may come after its drop", "half.go", "if w.asking != nil «&& !@ »{", steps},
	{"the dead are left alone", "lock.go", "«!@ && »now.Sub(last.at) > c.period():", steps},
	{"the living are taken out", "lock.go", "now.Sub(last.at) > c.period()« || @ && c.Session == \"\" && now.Sub(last.at) > c.period()/2»", schedules},
	{"a release that was repeated is a loss", "half.go", "= true, «!@ && (»earlier || removed«)»", schedules},
	{"a grant is as young as the try that finds it", "half.go", "driver.Granted && «!@ && »w.unsure", steps},
	{"a look counts as a beat", "half.go", "«if @ {\n\t\t\tbeaten = sent\n\t\t}\n\t\t»w.beaten = beaten", schedules},
	{"a guess is believed", "register.go", "case nothing && «!@ && »known.guessed:", schedules},
	{"two owners have the same fences", "lock.go", "«if !@ {\n\t\t»l.Fence = first + l.block«\n\t}»", schedules},
	{"callers that do not wait find the dead for ever", "half.go", "most < math.MaxInt && «!@ && »d.reapRemembered(", steps},
	{"a holder writes whenever it looks", "half.go", "beats := «@ || »time.Since", steps},
	{"a waiter is not told", "half.go", "w.news.Store(&doc)\n\t\t\t\t«if !@ {\n\t\t\t\t»a.Poke()«\n\t\t\t\t}»", steps},
	{"a session that counts on is ended", "session.go", "v.over = «@ || »b.finish(", steps},
	{"a session that stands still is believed", "session.go", "case «!@ && »now.Sub(v.since) > c.TTL:", steps},
	{"a session stays", "session.go", "tries := 1; «!@ && »!s.beaten.IsZero()", steps},
	{"each lease has its own beats", "half.go", "s == nil && beats && «!@ && »!a.Wire.beaten.IsZero()", steps},
	{"a watch that lags behind a look is believed", "half.go", "news != nil && «(@ || »d.showsLatest(w, *news)«)» {", steps},
	{"a write whose answer was lost is called refused", "register.go", "return «!@ && »err != nil && ", schedules},
}

// TestMutantsAreFound breaks this package in one place after the other, and has its tests find that.
func TestMutantsAreFound(t *testing.T) {
	race.Skip(t, "it compiles the package anew")
	judge.Find(t, mutants)
}
