package history

import (
	"errors"
	"fmt"
)

// Counts are what a run has done.
type Counts struct {
	Entries   int            // calls whose function ran
	Contended int            // of them those that came while another process was inside
	Hits      map[string]int // holders of a lock that were hit, by the name of the fault
}

// Count counts what the run has done.
func (h *History) Count() Counts {
	n := Counts{Hits: map[string]int{}}
	for _, calls := range h.byKey() {
		var before *Call
		for _, c := range certain(calls) {
			if c.Left == 0 && c.Back > 0 { // it had no function to run: see Journal.Places
				continue
			}
			n.Entries++
			if before != nil && before.Process != c.Process && before.exit() > c.Asked {
				n.Contended++
			}
			before = c
			for _, f := range h.Faults {
				if f.concerns(c.Process) && c.Held < f.Since && f.Since < c.exit() {
					n.Hits[f.Name]++
				}
			}
		}
	}
	return n
}

// Need is what a run must have done at least, or its history shows nothing. It is never less than one entry that had to wait for another process.
type Need struct {
	Entries, Contended int
	Hits               []string // faults, each of which must have hit a holder of a lock
}

// Enough is an error that says what the run did too little of.
func (c Counts) Enough(n Need) error {
	var missing []error
	want := func(have, least int, format string, args ...any) {
		if have < least {
			missing = append(missing, fmt.Errorf("%d %s, want %d at least", have, fmt.Sprintf(format, args...), least))
		}
	}
	want(c.Entries, max(1, n.Entries), "entries")
	want(c.Contended, max(1, n.Contended), "entries came while another process was inside")
	for _, name := range n.Hits {
		want(c.Hits[name], 1, "holders were hit by a %s", name)
	}
	return errors.Join(missing...)
}
