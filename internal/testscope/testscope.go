// Package testscope says which tests run when. `make test` is for every change: it runs the short tests, with go test -short.
// `make test-all` runs the long ones as well, and `make test-long`, which sets WLLOCK_LONG=1, lets what is random or loads a server
// go on for longer.
//
// A test is long if it takes more than two seconds alone, kills, stops or sets the clock of a holder, a waiter or the server below them,
// is a storm, or measures. What bounds wall time from above calls InTime. So what is short fails because of the change, and not because
// of the machine.
package testscope

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TB is the part of testing.TB that is needed here.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Long skips a long test under -short. Call it first. why says what makes the test long.
func Long(t TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("long, see make test-all: %s", why)
	}
}

// InTime fails a test if what took longer than limit. Under -short it only logs that, for a busy machine may be the cause.
func InTime(t TB, took, limit time.Duration, what string) {
	t.Helper()
	switch {
	case took <= limit:
	case testing.Short():
		t.Logf("%s took %v; the limit of make test-all is %v", what, took, limit)
	default:
		t.Fatalf("%s took %v; want at most %v", what, took, limit)
	}
}

// Longest skips a test that takes minutes, unless this is `make test-long`.
func Longest(t TB, why string) {
	t.Helper()
	if !testLong {
		t.Skipf("WLLOCK_LONG=1 runs it: %s", why)
	}
}

// Scale returns how many, or how long: usual, or in `make test-long` longest.
func Scale[N any](usual, longest N) N {
	if testLong {
		return longest
	}
	return usual
}

var testLong = func() bool {
	v := os.Getenv("WLLOCK_LONG")
	on, err := strconv.ParseBool(v)
	if v != "" && err != nil {
		panic("WLLOCK_LONG=" + strconv.Quote(v) + " is neither 1 nor 0")
	}
	return on
}()
