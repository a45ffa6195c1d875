package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at is a moment of the tables, in s.
func at(s float64) time.Time { return time.Unix(1000, 0).Add(seconds(s)) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// What a vote is worth is tested with T = 20 s, so W is 10 s, on servers that are an hour old and have noted T.
const rulesTTL = 20 * time.Second

// voteAfter is a vote after steps.
func voteAfter(steps ...func(*vote)) *vote {
	v := &vote{}
	for _, step := range steps {
		step(v)
	}
	return v
}

func asks(s float64) func(*vote)   { return func(v *vote) { v.ask(at(s)) } }
func yields(s float64) func(*vote) { return func(v *vote) { v.yield(at(s)) } }
func missed(v *vote)               { v.missed() }
func votesAt(s float64) func(*vote) {
	return func(v *vote) { v.told(true, false, time.Hour, rulesTTL, at(s)) }
}
func waitsAt(s float64) func(*vote) {
	return func(v *vote) { v.told(false, false, time.Hour, rulesTTL, at(s)) }
}
func brokenAt(s float64) func(*vote) {
	return func(v *vote) { v.told(false, true, time.Hour, rulesTTL, at(s)) }
}
func noticedAt(s float64, number uint64) func(*vote) {
	return func(v *vote) { v.noticed(number, time.Hour, rulesTTL, at(s)) }
}
func youngAt(s, age float64, noted time.Duration) func(*vote) {
	return func(v *vote) { v.told(true, false, seconds(age), noted, at(s)) }
}

func TestRules(t *testing.T) {
	counts := func(s float64, steps ...func(*vote)) bool {
		return voteAfter(steps...).counts(at(s), rulesTTL, rulesTTL)
	}
	renewal := func(words ...string) (tally held) {
		for tally.n = 5; len(words) > 0; words = words[1:] {
			tally.count(words[0], words[0] == "held" && tally.failed > 0, false)
		}
		return tally
	}
	released := func(found, missing, failed, perhaps uint64, underWay ...int) verdict {
		return releases{found, missing, failed, perhaps, underWay}.judge()
	}
	lasts := func(since ...float64) any {
		var all []time.Time
		for _, s := range since {
			all = append(all, at(s))
		}
		if sent := majoritySince(5, all); !sent.IsZero() {
			return sent
		}
		return "no majority"
	}
	heard := func(s float64, ttls ...float64) time.Duration { // one each second from 0 on, and then nothing
		var u inUse
		for i, ttl := range ttls {
			u = u.hear(at(float64(i)), seconds(ttl))
		}
		return u.hear(at(s), 0).ttl
	}
	trusted := func(age float64, steps ...[3]float64) time.Duration { // sent, received, age; the last is trusted so
		g, d := ages{}, time.Duration(0)
		for _, s := range steps {
			sent := at(s[0])
			if s[0] < 0 {
				sent = time.Time{}
			}
			g, d = g.trust(sent, at(s[1]), seconds(s[2]))
		}
		return d - seconds(age)
	}
	const vouched = 40 * 365 * 24 * 3600
	for _, row := range []struct {
		name      string
		got, want any
	}{
		{"quorum: 3", quorum(3), 2},
		{"quorum: 31", quorum(31), 16},
		{"proven lost: 2 of 5", provenLost(5, 2), false},
		{"proven lost: 3 of 5", provenLost(5, 3), true},

		{"trust: the first answer", trusted(3600, [3]float64{0, 1, 3600}), time.Duration(0)},
		{"trust: it is as slow", trusted(3602, [3]float64{0, 1, 3600}, [3]float64{1, 2, 3602}), time.Duration(0)},
		{"trust: one that comes late", trusted(3601, [3]float64{0, 1, 3600}, [3]float64{1, 2, 3602}, [3]float64{0.5, 3, 3601}), time.Duration(0)},
		{"trust: a step, which a notice shows", trusted(0, [3]float64{0, 1, 3600}, [3]float64{-1, 3, 3605}), time.Duration(0)},
		{"trust: it gets older after that", trusted(11, [3]float64{0, 1, 3600}, [3]float64{-1, 3, 3605}, [3]float64{14, 14, 3616}), time.Duration(0)},
		{"trust: a restart", trusted(1, [3]float64{0, 1, 3600}, [3]float64{15, 15, 1}), time.Duration(0)},
		{"trust: it is vouched for", trusted(vouched, [3]float64{0, 1, 3600}, [3]float64{-1, 3, 3605}, [3]float64{16, 16, vouched}), time.Duration(0)},

		{"in use: the longest", heard(3, 1, 100, 2), seconds(100)},
		{"in use: it is named again", heard(101, 100, 1, 100), seconds(100)},
		{"in use: it is forgotten", heard(101, 100, 1), time.Duration(0)},
		{"in use: a shorter one takes its place", heard(5, 3, 1, 1, 9), seconds(9)},

		{"vote: asked only", counts(1, asks(0)), false},
		{"vote: the answer gives it", counts(2, asks(0), votesAt(1)), true},
		{"vote: it waits", counts(2, asks(0), waitsAt(1)), false},
		{"vote: from the sending, less drift", counts(9.88, asks(0), votesAt(5)), true},
		{"vote: its window is over", counts(9.9, asks(0), votesAt(5)), false},
		{"vote: a notice gives it, from the question that it follows", counts(9.88, asks(0), waitsAt(1), noticedAt(8, 1)), true},
		{"vote: and no later", counts(9.9, asks(0), waitsAt(1), noticedAt(8, 1)), false},
		{"vote: a notice of no question", counts(2, asks(0), waitsAt(1), noticedAt(2, 0)), false},
		{"vote: a notice of a question to come", counts(2, asks(0), waitsAt(1), noticedAt(2, 2)), false},
		{"vote: a notice of before the last question", counts(4, asks(0), waitsAt(1), asks(2), waitsAt(3), noticedAt(4, 1)), false},
		{"vote: a notice of the last that was answered, while another is under way", counts(4, asks(0), waitsAt(1), asks(2), noticedAt(4, 1)), true},
		{"vote: a notice overtakes the first answer, so nobody knows how old the server is", counts(1, asks(0), noticedAt(1, 1)), false},
		{"vote: and the answer comes", counts(2, asks(0), noticedAt(1, 1), waitsAt(2)), true},
		{"vote: a later answer says that it is gone", counts(4, asks(0), votesAt(1), asks(2), waitsAt(3)), false},
		{"vote: a later question is not answered", counts(4, asks(0), votesAt(1), asks(2), missed), true},
		{"vote: but prolongs nothing", counts(10, asks(0), votesAt(1), asks(2), missed), false},
		{"vote: it is being yielded", counts(3, asks(0), votesAt(1), yields(2)), false},
		{"vote: a notice of before that", counts(3, asks(0), votesAt(1), yields(2), noticedAt(3, 1)), false},
		{"vote: a notice during that", counts(3, asks(0), votesAt(1), yields(2), noticedAt(3, 2)), false},
		{"vote: it was yielded, and comes back", counts(4, asks(0), votesAt(1), yields(2), waitsAt(3), noticedAt(4, 2)), true},
		{"vote: a yield without answer may come at any time", counts(5, asks(0), votesAt(1), yields(2), missed, asks(3), votesAt(4)), false},
		{"vote: a Break has met it", counts(4, asks(0), brokenAt(1), asks(2), votesAt(3)), false},
		{"vote: a young server", counts(2, asks(0), youngAt(1, 18, rulesTTL)), false},
		{"vote: that is old enough", counts(3.1, asks(0), youngAt(1, 18, rulesTTL)), true},
		{"vote: a longer TTL was heard of", voteAfter(asks(0), youngAt(1, 18, rulesTTL)).counts(at(3.1), rulesTTL, 2*rulesTTL), false},
		{"vote: it was too young to note our TTL", counts(2, asks(0), youngAt(1, 3600, rulesTTL-1)), false},
		{"vote: which makes it young", voteAfter(asks(0), youngAt(1, 3600, rulesTTL-1)).young(at(2), rulesTTL, rulesTTL), true},
		{"vote: a notice of a restart", counts(3, asks(0), waitsAt(1), func(v *vote) { v.noticed(1, 0, rulesTTL, at(2)) }), false},
		{"vote: and an answer of before that", counts(3, asks(0), func(v *vote) { v.noticed(1, 0, rulesTTL, at(1)) }, waitsAt(2)), false},

		{"since: none", lasts(1, 2), "no majority"},
		{"since: the third newest of five", lasts(1, 5, 9, 7), at(5)},
		{"since: all", lasts(1, 1, 9, 9, 9), at(9)},

		{"tally: nothing", tally{n: 5}.judge(), pending},
		{"tally: two votes", tally{n: 5, votes: 2, waits: 2}.judge(), pending},
		{"tally: three", tally{n: 5, votes: 3, errs: 2}.judge(), granted},
		{"tally: no majority can come", tally{n: 5, votes: 2, waits: 1, errs: 2}.judge(), refused},
		{"tally: nor here", tally{n: 5, waits: 3}.judge(), refused},
		{"tally: the slow were waited for", tally{n: 5, votes: 2, waits: 2, closed: true}.judge(), refused},
		{"tally: in vain", tally{n: 5, votes: 1, waits: 1, closed: true}.judge(), pending},
		{"tally: a majority fails", tally{n: 5, votes: 2, errs: 3}.judge(), unavailable},
		{"tally: of three", tally{n: 3, votes: 1, errs: 1}.judge(), pending},

		{"renewal: two", renewal("held", "held").judge(false), pending},
		{"renewal: three", renewal("held", "held", "held").judge(false), granted},
		{"renewal: three, too late", renewal("held", "held", "held").judge(true), refused},
		{"renewal: a new vote does not count", renewal("held", "held", "new", "none", "other").judge(false), refused},
		{"renewal: unknown is not lost", renewal("held", "held", "", "", "none").judge(false), unavailable},
		{"renewal: nor is a young server's vote", renewal("", "held", "held", "held", "none"), held{n: 5, failed: 4, gone: 1}},
		{"renewal: two are left", renewal("other", "none", "new").judge(false), refused},

		{"release: two", released(0b00011, 0, 0, 0, 0, 0, 1, 1, 1), pending},
		{"release: three had it", released(0b00111, 0, 0, 0, 0, 0, 0, 1, 1), granted},
		{"release: two had it, one had lost it, the others fail", released(0b00011, 0b00100, 0b11000, 0, 0, 0, 0, 1, 1), granted},
		{"release: and one was not tried yet", released(0b00011, 0b00100, 0b01000, 0, 0, 0, 0, 1, 1), pending},
		{"release: three had lost it", released(0, 0b00111, 0, 0, 0, 0, 0, 1, 1), refused},
		{"release: one of these may find it yet", released(0, 0b00111, 0, 0, 0, 0, 1, 1, 1), pending},
		{"release: both have answered, and one has found it", released(0b00100, 0b00111, 0b11000, 0, 0, 0, 0, 1, 1), granted},
		{"release: three miss it, which tries before may have released", released(0, 0b00111, 0b00111, 0b00111, 0, 0, 0, 1, 1), granted},
		{"release: three miss it, and of one it is certain", released(0, 0b00111, 0b00011, 0b00011, 0, 0, 0, 1, 1), pending},
		{"release: nobody will know", released(0b00001, 0, 0b11110, 0, 0, 0, 0, 0, 0), unavailable},

		{"fence: a majority", held{n: 5, ok: 3, high: 2}.judge(false), granted},
		{"fence: a majority knows larger ones", held{n: 5, high: 3}.judge(false), higher},
		{"fence: of all, together", held{n: 5, ok: 2, high: 1, failed: 2}.judge(false), higher},
		{"fence: which may become a majority", held{n: 5, ok: 2, high: 1}.judge(false), pending},
		{"fence: no majority has our vote", held{n: 5, ok: 2, gone: 3}.judge(false), refused},
		{"fence: unknown", held{n: 5, ok: 2, failed: 3}.judge(false), unavailable},
		{"fence: what a majority would take", leastFence(3, []uint64{9, 1, 5}), uint64(5)},
		{"fence: by those that have our vote", leastFence(5, []uint64{9, 1, 5}), uint64(9)},

		{"break: a majority", judgeBreak(5, 5, 3, 0), granted},
		{"break: two, and it may have had a third", judgeBreak(5, 4, 2, 0), granted},
		{"break: two of five", judgeBreak(5, 5, 2, 0), refused},
		{"break: none", judgeBreak(5, 3, 0, 0), refused},
		{"break: larger fences", judgeBreak(5, 5, 2, 3), higher},
		{"break: larger ones at others", judgeBreak(5, 5, 3, 2), granted},
	} {
		t.Run(row.name, func(t *testing.T) { require.Equal(t, row.want, row.got) })
	}
	fences := held{n: 5}
	for _, word := range []string{"ok", "high", "other", ""} {
		fences.count(word, false, false)
	}
	fences.count("ok", true, false)
	require.Equal(t, held{5, 1, 1, 1, 2}, fences, "a young server's fences are unknown")
	fences.count("ok", false, true)
	require.Equal(t, 2, fences.gone, "and a void vote's are none")
}
