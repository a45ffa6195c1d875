package history

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const late = 50 // of calls in these tests, whose times are small numbers

// call is one of process p that was certain for as long as it was inside.
func call(p string, asked, held, left int64, fence uint64, as ...func(*Call)) *Call {
	c := &Call{
		Request: Request{Caller: "1", Key: "k"}, Process: p, Asked: asked, Held: held, Certain: left, Left: left, Back: left + 1, Fence: fence,
	}
	for _, f := range as {
		f(c)
	}
	return c
}

func shared(c *Call) { c.Shared = true }

func permit(n int) func(*Call) { return func(c *Call) { c.Permits = n } }

func queued(at int64) func(*Call) { return func(c *Call) { c.Queued = at } }

// unsure was never certain, as one that was stopped before it looked.
func unsure(c *Call) { c.Certain = 0 }

// alone was let work by its process all the time.
func alone(c *Call) { c.Admitted = c.Left }

// until sets a deadline, and when the call was back without the lock. 0: it is not back.
func until(deadline, back int64) func(*Call) {
	return func(c *Call) { c.Deadline, c.Held, c.Certain, c.Left, c.Back = deadline, 0, 0, 0, back }
}

// wrote has read was, and has written was + 1. An outcome other than Wrote is one of the write.
func wrote(was int64, outcome What) func(*Call) {
	return func(c *Call) {
		end := c.Left
		if outcome == "" {
			end = forever
		}
		c.Accesses = append(c.Accesses,
			&Access{Read: true, Fence: c.Fence, Was: was, New: was, From: c.Held, Until: c.Held + 1, Outcome: Got},
			&Access{Fence: c.Fence, Was: was, New: was + 1, From: c.Held + 1, Until: end, Outcome: outcome})
	}
}

func fault(name, on string, since, until int64) Event {
	return Event{Fault: Fault{name, on, since}, At: until}
}

// Histories that break a rule, and similar ones that do not. few is how many calls are left of those that do.
func TestRulesAreChecked(t *testing.T) {
	for name, one := range map[string]struct {
		breaks string
		few    int
		calls  []*Call
		faults []Event
	}{
		"two holders":                 {"S1 exclusion", 2, []*Call{call("a", 1, 10, 20, 1), call("b", 5, 19, 25, 2), call("c", 5, 30, 35, 3)}, nil},
		"one after the other":         {"", 0, []*Call{call("a", 1, 10, 20, 1), call("b", 5, 20, 25, 2)}, nil},
		"beside one that is not sure": {"", 0, []*Call{call("a", 1, 10, 20, 1), call("b", 5, 15, 25, 2, unsure)}, nil},
		"a reader beside a writer":    {"S1 exclusion", 2, []*Call{call("a", 1, 10, 20, 1), call("b", 5, 19, 25, 2, shared)}, nil},
		"a writer beside a permit":    {"S1 exclusion", 2, []*Call{call("a", 1, 10, 20, 1, permit(2)), call("b", 5, 19, 25, 2)}, nil},
		"a writer beside a long reader": {"S1 exclusion", 2, []*Call{
			call("a", 1, 10, 90, 1, shared), call("b", 5, 19, 25, 2, shared), call("c", 5, 30, 35, 3),
		}, nil},
		"readers": {"", 0, []*Call{call("a", 1, 10, 20, 1, shared), call("b", 5, 19, 25, 1, shared)}, nil},

		"two in a process without leases": {"T9 degraded", 2, []*Call{
			call("a", 1, 10, 20, 0, unsure, alone), call("a", 5, 19, 25, 0, unsure, alone),
		}, nil},
		"two in two processes without leases": {"", 0, []*Call{
			call("a", 1, 10, 20, 0, unsure, alone), call("b", 5, 19, 25, 0, unsure, alone),
		}, nil},
		"readers without leases": {"", 0, []*Call{
			call("a", 1, 10, 20, 0, unsure, alone, shared), call("a", 5, 19, 25, 0, unsure, alone, shared),
		}, nil},

		"three permits of two": {"P1 permits", 3, []*Call{
			call("a", 1, 10, 20, 1, permit(2)), call("b", 5, 11, 25, 2, permit(2)), call("c", 5, 24, 25, 3, permit(2)), call("d", 6, 19, 25, 4, permit(2)),
		}, nil},
		"a smaller limit in time": {"", 0, []*Call{
			call("a", 1, 10, 20, 3, permit(2)), call("b", 5, 11, 25, 2, permit(2)), call("c", 5, 12, 25, 1, permit(3)), call("d", 6, 20, 21, 4, permit(3)),
		}, nil},
		"two permits with a fence": {"P1 permits", 2, []*Call{call("a", 1, 10, 20, 1, permit(2)), call("b", 5, 11, 25, 1, permit(2))}, nil},

		"a fence that is given twice":    {"S2 fences", 2, []*Call{call("a", 1, 10, 20, 1), call("b", 5, 20, 25, 1)}, nil},
		"a fence that falls":             {"S2 fences", 2, []*Call{call("a", 1, 10, 20, 3, shared), call("b", 5, 20, 25, 2)}, nil},
		"a reader with an earlier fence": {"S2 fences", 2, []*Call{call("a", 1, 10, 20, 3), call("b", 5, 20, 25, 2, shared)}, nil},
		"readers with any fences":        {"", 0, []*Call{call("a", 1, 10, 20, 3, shared), call("b", 5, 20, 25, 2, shared)}, nil},
		"no fences":                      {"", 0, []*Call{call("a", 1, 10, 20, 0), call("b", 5, 20, 25, 0)}, nil},

		"overtaken":              {"C8 order", 2, []*Call{call("a", 1, 20, 25, 2, queued(3)), call("b", 4, 10, 15, 1)}, nil},
		"sent before the answer": {"", 0, []*Call{call("a", 1, 20, 25, 2, queued(3)), call("b", 3, 10, 15, 1)}, nil},
		"a reader that is overtaken": {"C8 order", 2, []*Call{
			call("a", 1, 20, 25, 2, queued(3), shared), call("b", 4, 10, 15, 1),
		}, nil},
		"readers in any order": {"", 0, []*Call{call("a", 1, 20, 25, 2, queued(3), shared), call("b", 4, 10, 15, 1, shared)}, nil},
		"overtaken while it stood still": {"", 0, []*Call{
			call("a", 1, 20, 25, 2, queued(3)), call("b", 4, 10, 15, 1),
		}, []Event{fault(Stall, "a", 4, 12)}},
		"overtaken while another stood still": {"C8 order", 2, []*Call{
			call("a", 1, 20, 25, 2, queued(3)), call("b", 4, 10, 15, 1),
		}, []Event{fault(Stall, "b", 4, 12)}},

		"a late refusal":          {"S3 deadlines", 1, []*Call{call("a", 1, 0, 0, 0, until(100, 151)), call("b", 2, 0, 0, 0, until(100, 120))}, nil},
		"a refusal in time":       {"", 0, []*Call{call("a", 1, 0, 0, 0, until(100, 150))}, nil},
		"late as its process was": {"", 0, []*Call{call("a", 1, 0, 0, 0, until(100, 180))}, []Event{fault(Stop, "a", 90, 130), fault(Stall, "a", 90, 131)}},
		"later than that": {"S3 deadlines", 1, []*Call{
			call("a", 1, 0, 0, 0, until(100, 182)),
		}, []Event{fault(Stop, "a", 90, 130), fault(Stall, "a", 90, 131)}},
		"no answer":              {"S3 deadlines", 1, []*Call{call("lives", 1, 0, 0, 0, until(100, 0))}, nil},
		"no answer before death": {"", 0, []*Call{call("dead", 1, 0, 0, 0, until(100, 0))}, nil},

		"a lost update": {"linearizable", 2, []*Call{
			call("a", 1, 10, 20, 1, wrote(0, Wrote)), call("b", 1, 20, 30, 2, wrote(1, Wrote)), call("c", 1, 40, 50, 3, wrote(1, Wrote)),
		}, nil},
		"one after the other's update": {"", 0, []*Call{call("a", 1, 10, 20, 1, wrote(0, Wrote)), call("b", 1, 20, 30, 2, wrote(1, Wrote))}, nil},
		"an update that may have been": {"", 0, []*Call{call("a", 1, 10, 20, 1, wrote(0, "")), call("b", 1, 20, 30, 2, wrote(1, Wrote))}, nil},
		"or not":                       {"", 0, []*Call{call("a", 1, 10, 20, 1, wrote(0, "")), call("b", 1, 20, 30, 2, wrote(0, Wrote))}, nil},
		"an update out of nothing":     {"linearizable", 1, []*Call{call("a", 1, 10, 20, 1, wrote(0, Wrote)), call("b", 1, 30, 40, 2, wrote(5, Wrote))}, nil},
		"a refusal of the last fence":  {"linearizable", 1, []*Call{call("a", 1, 10, 20, 1, wrote(0, Wrote)), call("b", 1, 30, 40, 2, wrote(1, Refused))}, nil},
		"a refusal of an earlier one": {"", 0, []*Call{
			call("a", 1, 10, 50, 1, wrote(0, Refused), func(c *Call) { c.Certain = 11 }), call("b", 1, 30, 40, 2, wrote(0, Wrote)),
		}, nil},
		"a fence that comes too late": {"linearizable", 2, []*Call{
			call("a", 1, 10, 20, 2, wrote(0, Wrote), unsure), call("b", 1, 30, 40, 1, wrote(1, Wrote)),
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := History{Calls: one.calls, Faults: one.faults, Ends: map[string]int64{"lives": 1000, "dead": 99}}
			found := h.Check(Rules{Store: Compares, Late: late})
			if one.breaks == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, one.breaks, found[0].Rule)
			assert.Len(t, found[0].Calls, one.few, "%v", found[0])
		})
	}
}

// What a store that compares no fences does, must show: the write of a holder that was paused. A refusal of it would be a riddle.
func TestBlindStoreLosesUpdates(t *testing.T) {
	paused := func(outcome What) *History {
		return &History{Calls: []*Call{
			call("a", 1, 10, 50, 1, wrote(0, outcome), func(c *Call) { c.Certain = 11 }), call("b", 1, 30, 40, 2, wrote(0, Wrote)),
			call("c", 1, 60, 70, 3, wrote(1, Wrote)),
		}}
	}
	h := paused(Wrote)
	require.NotEmpty(t, h.Check(Rules{Store: Blind}))
	h = paused(Refused)
	require.NotEmpty(t, h.Check(Rules{Store: Blind}))
	require.Empty(t, h.Check(Rules{Store: Compares}))
	require.Empty(t, h.Check(Rules{Store: NoData}))
}

func TestRunThatDidTooLittle(t *testing.T) {
	calls := []*Call{call("a", 1, 10, 20, 1), call("b", 5, 20, 25, 2), call("b", 50, 60, 70, 3)}
	stop := fault(Stop, "a", 15, 18)
	for name, one := range map[string]struct {
		h    *History
		need Need
		says string
	}{
		"nothing":           {&History{}, Need{}, "0 entries, want 1 at least"},
		"too few":           {&History{Calls: calls}, Need{Entries: 4}, "3 entries, want 4 at least"},
		"no contention":     {&History{Calls: calls[:1]}, Need{}, "0 entries came while another process was inside, want 1 at least"},
		"no fault":          {&History{Calls: calls}, Need{Hits: []string{Stop}}, "0 holders were hit by a stop, want 1 at least"},
		"another fault":     {&History{Calls: calls, Faults: []Event{stop}}, Need{Hits: []string{Stop, Kill}}, "0 holders were hit by a kill"},
		"beside a holder":   {&History{Calls: calls, Faults: []Event{fault(Stop, "b", 15, 18)}}, Need{Hits: []string{Stop}}, "0 holders were hit by a stop, want 1 at least"},
		"enough":            {&History{Calls: calls, Faults: []Event{stop}}, Need{Entries: 3, Contended: 1, Hits: []string{Stop}}, ""},
		"the whole service": {&History{Calls: calls, Faults: []Event{fault("cut", "", 15, 18)}}, Need{Hits: []string{"cut"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := one.h.Count().Enough(one.need)
			if one.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, one.says)
		})
	}
}
