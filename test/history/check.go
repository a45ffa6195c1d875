package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// Rules are what a history is checked for.
type Rules struct {
	Store   Store
	Initial int64         // value of the data of each key
	Late    time.Duration // how late an answer may be, beside the time that the process did not run
}

// Violation is a rule that a history breaks.
type Violation struct {
	Rule, Key, Text string
	At              time.Duration // since the first call
	Calls           []*Call       // as few as break it
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, key %q, %v after the first call: %s", v.Rule, v.Key, v.At, v.Text)
}

// finding is what breaks a rule, among calls for one key. nil: nothing does.
type finding struct {
	at   int64
	text string
}

func found(at int64, format string, args ...any) *finding {
	return &finding{at, fmt.Sprintf(format, args...)}
}

// Check returns the first violation of each rule and key. It takes n log n steps for n calls, but for the data, see Store.
func (h *History) Check(r Rules) (all []Violation) {
	slices.SortFunc(h.Faults, func(a, b Event) int { return cmp.Compare(a.Since, b.Since) })
	rules := map[string]func([]*Call) *finding{
		"S1 exclusion": exclusion, "T9 degraded": degraded, "P1 permits": permits, "S2 fences": fences, "C8 order": h.order,
		"S3 deadlines": func(calls []*Call) *finding { return h.deadlines(calls, r.Late) },
	}
	of := h.byKey()
	for _, key := range slices.Sorted(maps.Keys(of)) {
		add := func(rule string, f *finding, calls []*Call) {
			all = append(all, Violation{rule, key, f.text, h.since(f.at), calls})
		}
		for _, rule := range slices.Sorted(maps.Keys(rules)) {
			if broken := rules[rule]; broken(of[key]) != nil {
				few := smallest(of[key], func(some []*Call) bool { return broken(some) != nil })
				add(rule, broken(few), few)
			}
		}
		if f, few := r.data(of[key]); f != nil {
			add("linearizable", f, few)
		}
	}
	return all
}

// cutting is how long a failing history is cut down.
const cutting = 10 * time.Second

// smallest returns calls that fail, of which none can be left out. It is for what fails all the more with more calls. It looks for the
// smallest window of time up to which they fail, keeps its last call, and goes on with those before. When its time is over it returns what
// is left.
func smallest(calls []*Call, fails func([]*Call) bool) (few []*Call) {
	for end := time.Now().Add(cutting); !fails(few); {
		with := func(n int) []*Call { return append(slices.Clone(few), calls[:n]...) }
		n := 1 + sort.Search(len(calls), func(i int) bool { return fails(with(i + 1)) })
		if n > len(calls) || time.Now().After(end) {
			return with(len(calls))
		}
		few, calls = append(few, calls[n-1]), calls[:n-1]
	}
	slices.SortFunc(few, func(a, b *Call) int { return cmp.Compare(a.Asked, b.Asked) })
	return few
}

// certain are those that were certain of their lease once, in the order in which they were. Leases that exclude each other were granted
// in that order.
func certain(calls []*Call) []*Call {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c *Call) bool { return c.Certain == 0 })
	slices.SortFunc(calls, func(a, b *Call) int {
		return cmp.Or(cmp.Compare(a.Held, b.Held), cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Asked, b.Asked))
	})
	return calls
}

// follows compares each with one before it that excludes it: of those the one with the largest rank.
func follows(calls []*Call, rank func(*Call) int64, broken func(c, before *Call) *finding) *finding {
	var exclusive, all *Call
	for _, c := range certain(calls) {
		before := exclusive
		if c.exclusive() {
			before = all
		}
		if before != nil {
			if f := broken(c, before); f != nil {
				return f
			}
		}
		if all == nil || rank(all) < rank(c) {
			all = c
		}
		if c.exclusive() && (exclusive == nil || rank(exclusive) < rank(c)) {
			exclusive = c
		}
	}
	return nil
}

// exclusion finds two that were certain at the same time, of which one is exclusive.
func exclusion(calls []*Call) *finding {
	return follows(calls, func(c *Call) int64 { return c.Certain }, func(c, before *Call) *finding {
		if before.Certain <= c.Held {
			return nil
		}
		return found(c.Held, "%v was certain beside %v, which was for %v more", c, before, time.Duration(before.Certain-c.Held))
	})
}

// degraded finds two that one process let work at the same time, with a lease or without, of which one is exclusive.
func degraded(calls []*Call) *finding {
	of := map[string][]*Call{}
	for _, c := range calls {
		own := *c
		own.Certain = c.Admitted
		of[c.Process] = append(of[c.Process], &own)
	}
	for _, process := range slices.Sorted(maps.Keys(of)) {
		if f := exclusion(of[process]); f != nil {
			return f
		}
	}
	return nil
}

// fences finds one that does not grow (rule T4). Those of readers and permits are above those of exclusive holders before.
func fences(calls []*Call) *finding {
	return follows(calls, func(c *Call) int64 { return int64(c.Fence) }, func(c, before *Call) *finding {
		if c.Fence == 0 || c.Fence > before.Fence {
			return nil
		}
		return found(c.Held, "%v follows %v", c, before)
	})
}

// order finds a request that had a place, and was served after one that was sent later. How long a request takes to its place lies between
// these two times, so there is no tolerance to guess. A process that was disturbed while it waited may have lost its place.
func (h *History) order(calls []*Call) *finding {
	return follows(calls, func(c *Call) int64 { return c.Asked }, func(c, before *Call) *finding {
		if c.Queued == 0 || c.Queued >= before.Asked || h.disturbed(c) {
			return nil
		}
		return found(c.Held, "%v had a place %v before %v was sent, which was served first", c, time.Duration(before.Asked-c.Queued), before)
	})
}

// permits finds more holders at a time than the largest of their limits, or two with one fence (rule P4).
func permits(calls []*Call) *finding {
	var inside []*Call
	owners := map[uint64]*Call{}
	for _, c := range certain(calls) {
		if c.Permits == 0 {
			continue
		}
		if o := owners[c.Fence]; o != nil {
			return found(c.Held, "%v has the fence of %v", c, o)
		}
		if c.Fence > 0 {
			owners[c.Fence] = c
		}
		inside = append(slices.DeleteFunc(inside, func(o *Call) bool { return o.Certain <= c.Held }), c)
		slices.SortStableFunc(inside, func(a, b *Call) int { return a.Permits - b.Permits })
		for i, o := range inside {
			if i >= o.Permits {
				return found(c.Held, "%d were certain of one of %d permits", i+1, o.Permits)
			}
		}
	}
	return nil
}

func (h *History) disturbed(c *Call) bool {
	return slices.ContainsFunc(h.Faults, func(f Event) bool { return f.concerns(c.Process) && f.Since <= c.Held && f.At >= c.Asked })
}

// deadlines finds a call that was not answered in time. One without an answer is late if its process lived on.
func (h *History) deadlines(calls []*Call, late time.Duration) *finding {
	for _, c := range calls {
		answer := cmp.Or(c.Held, c.Back, h.Ends[c.Process])
		if over := time.Duration(answer - c.Deadline); c.Deadline > 0 && over > late {
			if still := h.still(c.Process, c.Deadline, answer); over-still > late {
				return found(answer, "%v had no answer for %v after its deadline, and its process did not run for %v of that", c, over, still)
			}
		}
	}
	return nil
}

// still is how long a process did not run in that time.
func (h *History) still(process string, from, until int64) (d time.Duration) {
	for _, f := range h.Faults { // they may overlap: a stop is a stall as well
		if from < f.At && f.concerns(process) && (f.Name == Stop || f.Name == Stall) {
			d += time.Duration(max(0, min(f.At, until)-max(f.Since, from)))
			from = f.At
		}
	}
	return d
}
