package history

import (
	"errors"
	"fmt"
	"slices"
)

// Need is what a run must have done at least, or its history shows nothing. It is never less than one entry that had to wait for another process.
type Need struct {
	Entries   int      // calls whose function ran
	Contended int      // of them those that came while another process was inside
	Hits      []string // faults, each of which must have hit a holder of a lock
}

// Enough is an error that says what the run did too little of.
func (h *History) Enough(n Need) error {
	entries, contended, hits := 0, 0, map[string]int{}
	for _, calls := range h.byKey() {
		var before *Call
		for _, c := range certain(calls) {
			if c.Left == 0 && c.Back > 0 { // it had no function to run: see Journal.Places
				continue
			}
			entries++
			if before != nil && before.Process != c.Process && before.exit() > c.Asked {
				contended++
			}
			before = c
			for _, f := range h.Faults {
				if slices.Contains(n.Hits, f.Name) && f.concerns(c.Process) && c.Held < f.Since && f.Since < c.exit() {
					hits[f.Name]++
				}
			}
		}
	}
	var missing []error
	want := func(have, least int, format string, args ...any) {
		if have < least {
			missing = append(missing, fmt.Errorf("%d %s, want %d at least", have, fmt.Sprintf(format, args...), least))
		}
	}
	want(entries, max(1, n.Entries), "entries")
	want(contended, max(1, n.Contended), "entries came while another process was inside")
	for _, name := range n.Hits {
		want(hits[name], 1, "holders were hit by a %s", name)
	}
	return errors.Join(missing...)
}
