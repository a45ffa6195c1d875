package config

import (
	"fmt"
	"strings"
)

// Error lists everything that is wrong with a Config or the environment, so that one start of the program reports all of it.
type Error struct {
	Problems []Problem
}

// Problem is one wrong setting. Its texts contain no secrets.
type Problem struct {
	Variable string // such as WLLOCK_LEASE_TTL
	Fault    string // what is wrong
	Allowed  string // what is allowed
	Example  string // as a line of an env file, if there is one
}

// Error returns a line for each problem.
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

// String returns the problem in one line.
func (p Problem) String() string {
	example := ""
	if p.Example != "" {
		example = "; example: " + p.Example
	}
	return fmt.Sprintf("%s %s (allowed: %s%s)", p.Variable, p.Fault, p.Allowed, example)
}

// fault is an error of a Decode method whose text contains no secret.
type fault string

func (f fault) Error() string { return string(f) }
