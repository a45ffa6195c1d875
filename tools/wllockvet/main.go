// Command wllockvet finds mistakes in programs that use wllock: what compiles, passes tests, and goes wrong when a lock is lost, a process is
// shut down, or two callers meet. It runs alone or under go vet:
//
//	wllockvet ./...
//	go vet -vettool=$(which wllockvet) ./...
//
// Each rule is an analyzer with a flag of its name: -lockerr runs that one, -lockerr=false the others. wllockvet help lists them.
//
// A rule says nothing where it is in doubt. What is written down for others to judge (a lock that is stored or passed on, a deferred call, a
// goroutine, keys that were sorted) is taken to be right.
package main

import (
	"flag"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"
)

var rules = []*analysis.Analyzer{guardctx, heldcheck, keyloop, closebound, lostrelease, lockerr}

// tests is off because tests lose locks and ignore errors on purpose, and a Locker of wllocktest finds what a test forgets to release.
var tests = flag.Bool("tests", false, "also report what is found in tests: files that import testing, or end in _test.go")

func main() { multichecker.Main(rules...) }
