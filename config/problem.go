package config

import (
	"fmt"
	"strings"
)

// Error is everything that is wrong with a Config or the environment, so that it takes one start to find it all, and
// not one for each.
type Error struct {
	Problems []Problem
}

// Problem is one wrong setting. None of its texts holds a secret.
type Problem struct {
	Variable string // WLLOCK_LEASE_TTL
	Fault    string // what is wrong
	Allowed  string // what would be right
	Example  string // as a line of an env file
}

// Error has a line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("wllock: ")
	if len(e.Problems) == 1 {
		b.WriteString("wrong setting: ")
		b.WriteString(e.Problems[0].String())
		return b.String()
	}
	fmt.Fprintf(&b, "%d wrong settings:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// String is the problem in one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s %s (allowed: %s; example: %s)", p.Variable, p.Fault, p.Allowed, p.Example)
}

// fault is an error of a Decode method whose text may be shown.
type fault string

func (f fault) Error() string { return string(f) }
