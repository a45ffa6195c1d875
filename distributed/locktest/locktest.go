// Package locktest is the conformance suite for implementations of distributed.Backend: each rule is a case named after it.
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, locktest.Fixture{Open: func(t locktest.TB) locktest.Service {
//			return locktest.Service{Backend: mylock.New()}
//		}})
//	}
//
// Each case opens its own service, so all run in parallel. Cases about order use leases so long that none can expire: so a
// backend that acts at once is told apart from one that only repairs later, on a slow machine too. Cases about time derive
// every margin from Fixture.TTL, or compare with Lease.Until, which needs none.
//
// A bug found in one backend becomes a case for all: write a func(*env, string) that mentions no backend and add it to the list in
// its file.
package locktest

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Fixture says how to test a backend.
type Fixture struct {
	// Open returns a service without any locks. It cleans up with t.Cleanup. The suite closes the backends.
	Open func(t TB) Service
	// TTL of the leases in cases about time: the shortest that the backend keeps reliably on the machine (default
	// [DefaultTTL]).
	TTL time.Duration
	// Bubble runs each case in a testing/synctest bubble, in no time. For backends without I/O.
	Bubble bool
	// Skip says why a case is not run. "" runs it. nil: all cases are run.
	Skip func(Case) string
}

// Service is a lock service and what a test can do to it.
type Service struct {
	Backend distributed.Backend
	Another func() distributed.Backend   // connects another process to the same service. nil: all instances share Backend
	Expire  func(key string)             // makes the service forget the owner of the key, as DEL does. nil: such cases are skipped
	Forget  func(key string)             // makes the service forget what it may of a free lock. nil: such cases are skipped
	Holder  func(instance string) string // how answers name an instance that has the lock. nil: as it is
	Cut     func(cut bool)               // cuts the network to the service, and heals it. nil: such cases are skipped
	// NoPermits says that the backend answers a Request.Limit with an error, which Is errors.ErrUnsupported. Such cases are
	// skipped.
	NoPermits bool
}

// DefaultTTL makes the suite last a few seconds and forgives a machine that stands still for 100 ms.
const DefaultTTL = 400 * time.Millisecond

// Case is one rule.
type Case struct {
	Name string
	run  func(e *env, key string) // the key is free before, and has to be so afterwards
}

// Cases returns all rules.
func Cases() []Case {
	return slices.Concat(orderCases, noWaitCases, sharedCases, permitCases, permitTimeCases, fenceCases, releaseCases, prevCases, placeCases,
		noticeCases, timeCases, cutCases, loadCases, keyCases, inspectCases, breakCases, transferCases, runCases, closeCases)
}

// Brief is a [Fixture.Skip] for one more kind of a service of which another is tested in full. Under go test -short it runs what
// depends most on the kind: the cases of order, prev, places, cuts and Close.
func Brief(c Case) string {
	same := func(other Case) bool { return other.Name == c.Name }
	if !testing.Short() || slices.ContainsFunc(slices.Concat(orderCases, prevCases, placeCases, cutCases, closeCases), same) {
		return ""
	}
	return "another kind of this service is tested in full; go test without -short runs this"
}

// Run runs every case as a parallel subtest of t. At the end it logs how many rules the service has kept from being checked.
func Run(t *testing.T, f Fixture) {
	s := skips{count: map[string]int{}}
	t.Cleanup(func() { s.log(t) }) // after all subtests
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if f.Skip != nil {
				if why := f.Skip(c); why != "" {
					counted{t, &s}.Skipf("%s", why)
				}
			}
			if f.Bubble {
				synctest.Test(t, func(t *testing.T) { c.Check(counted{t, &s}, f) })
			} else {
				c.Check(counted{t, &s}, f)
			}
		})
	}
}

// Check runs the case.
func (c Case) Check(t TB, f Fixture) {
	f.TTL = cmp.Or(f.TTL, DefaultTTL)
	e := newEnv(t, f)
	key := e.key("k")
	c.run(e, key)
	if !e.closed {
		e.free(key)
	}
}

// Failures runs the case outside of any test and returns its failures: none if the rule is kept. It is for tests of the
// suite itself, with backends that are wrong on purpose.
func (c Case) Failures(f Fixture) []string {
	r := &recorder{name: c.Name}
	r.watch(func() { c.Check(r, f) })
	return r.failures
}
