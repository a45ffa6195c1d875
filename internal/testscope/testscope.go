// Package testscope says which tests run when. `make test` is for every change: it runs the short tests, with go test -short.
// `make test-all` runs the long ones as well.
//
// A test is long if it takes more than two seconds alone, bounds wall time from above, kills, stops or sets the clock of a server or
// a process, is a storm, or measures. So what is short fails because of the change, and not because of the machine.
package testscope

import "testing"

// TB is the part of testing.TB that is needed here.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
}

// Long skips a long test under -short. Call it first; why says what makes the test long.
func Long(t TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("long, see make test-all: %s", why)
	}
}
