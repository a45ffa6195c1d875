package history

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// Store is what keeps the data: a writer reads a value, and puts another one in its place. Such histories are checked by porcupine, whose time and
// memory grow with the square of the accesses to one key. Some ten thousand are decided in seconds.
type Store int

// The stores.
const (
	NoData   Store = iota // nothing is read or written
	Compares              // it refuses fences smaller than the largest it has seen
	Blind                 // it compares none
)

// deciding is how long porcupine may take for a key.
const deciding = time.Minute

// model is the sequential specification of a value.
type model struct {
	compares bool
	initial  int64
	// gaps says that accesses were left out. They have counted on, and had larger fences. So what fails with gaps fails without.
	gaps bool
}

type state struct {
	value int64
	fence uint64
}

// step returns the states that an access may lead to.
func (m model) step(s state, a *Access) (next []any) {
	if a.Outcome == Refused {
		if m.compares && (m.gaps || a.Fence < s.fence) {
			next = append(next, s)
		}
		return next
	}
	after := state{a.New, max(a.Fence, s.fence)}
	known := a.Was == s.value || m.gaps && a.Was > s.value
	if a.Read && a.Outcome == "" { // what it would have read
		known, after.value = true, s.value
	}
	if known && (!m.compares || a.Fence == 0 || a.Fence >= s.fence) {
		next = append(next, after)
	}
	if a.Outcome == "" {
		next = append(next, s) // it did not arrive
	}
	return next
}

func (m model) check(accesses []*Access, patience time.Duration) porcupine.CheckResult {
	all := make([]porcupine.Operation, len(accesses))
	for i, a := range accesses {
		all[i] = porcupine.Operation{Input: a, Call: a.From, Return: a.Until}
	}
	return porcupine.CheckOperationsTimeout((&porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{value: m.initial}} },
		Step: func(s, a, _ any) []any { return m.step(s.(state), a.(*Access)) },
	}).ToModel(), all, patience)
}

// accesses are those of calls, in the order in which they began.
func accesses(calls []*Call) (all []*Access) {
	for _, c := range calls {
		all = append(all, c.Accesses...)
	}
	slices.SortFunc(all, func(a, b *Access) int { return cmp.Compare(a.From, b.From) })
	return all
}

// data finds accesses that no order explains, and as few calls as possible that had them.
func (r Rules) data(calls []*Call) (*finding, []*Call) {
	if r.Store == NoData {
		return nil, nil
	}
	m, all := model{compares: r.Store == Compares, initial: r.Initial}, accesses(calls)
	switch m.check(all, deciding) {
	case porcupine.Ok:
		return nil, nil
	case porcupine.Unknown:
		return found(all[0].From, "not decided within %v", deciding), nil
	}
	fails := func(some []*Access) bool { return m.check(some, cutting/10) == porcupine.Illegal }
	if m.gaps = true; fails(all) {
		few := smallest(calls, func(some []*Call) bool { return fails(accesses(some)) })
		return found(accesses(few)[len(accesses(few))-1].From, "no order explains %v", accesses(few)), few
	}
	m.gaps = false
	ends := slices.SortedFunc(slices.Values(all), func(a, b *Access) int { return cmp.Compare(a.Until, b.Until) })
	bad := ends[sort.Search(len(ends)-1, func(i int) bool { return fails(before(all, ends[i].Until)) })]
	few := slices.DeleteFunc(slices.Clone(calls), func(c *Call) bool {
		return !slices.ContainsFunc(c.Accesses, func(a *Access) bool { return a.Outcome != "" && a.From <= bad.Until && a.Until >= bad.From })
	})
	return found(bad.From, "nothing before or beside it explains %v", bad), few
}

// before is what was known at a time: what was begun by then, with the answers that had come.
func before(all []*Access, at int64) (known []*Access) {
	for _, a := range all {
		if a.From > at {
			break
		}
		if a.Until > at {
			open := *a
			open.Until, open.Outcome = forever, ""
			a = &open
		}
		known = append(known, a)
	}
	return known
}
