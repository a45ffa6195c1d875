// Package locktest holds the rules that every distributed.Backend keeps, each as a case named for it.
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, locktest.Fixture{Open: func(t locktest.TB) locktest.Service {
//			return locktest.Service{Backend: mylock.New()}
//		}})
//	}
//
// A case opens a service of its own, so all run in parallel. Cases about order ask for leases so long that none can
// expire: what is late by a repair of the backend is then told from what was done at once, on a slow machine too. Cases
// about time derive every margin from Fixture.TTL, or compare with Lease.Until, which needs none.
//
// A fault found in one backend becomes a case for all: write a func(*env) that says nothing of any backend and add it
// to the list at the head of its file.
package locktest

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Fixture says how a backend is put to the test.
type Fixture struct {
	// Open returns a service without any locks in it. What is to be undone goes to t.Cleanup; the suite closes the
	// backends.
	Open func(t TB) Service
	// TTL of the leases in cases about time; the shortest the backend keeps reliably on the machine. 0: DefaultTTL.
	TTL time.Duration
	// Bubble runs each case in a bubble of testing/synctest, in no time. For backends that use no real network.
	Bubble bool
}

// Service is a lock service and what can be done to it.
type Service struct {
	Backend distributed.Backend
	Another func() distributed.Backend // connects another process to the same service; nil: all instances share Backend
	Expire  func(key string)           // makes the service forget who has the key, as DEL does; nil: cannot be done
	Cut     func(cut bool)             // cuts the network to the service, and heals it; nil: cannot be done
}

// DefaultTTL makes the suite last a few seconds and forgives a machine that stands still for 100 ms.
const DefaultTTL = 400 * time.Millisecond

// Case is one rule.
type Case struct {
	Name string
	run  func(*env)
}

// Cases returns all rules.
func Cases() []Case {
	return slices.Concat(orderCases, noWaitCases, sharedCases, fenceCases, releaseCases, prevCases, placeCases,
		noticeCases, timeCases, cutCases, loadCases, keyCases, closeCases)
}

// Run runs every case as a parallel subtest of t.
func Run(t *testing.T, f Fixture) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if f.Bubble {
				synctest.Test(t, func(t *testing.T) { c.Check(t, f) })
			} else {
				c.Check(t, f)
			}
		})
	}
}

// Check runs the case.
func (c Case) Check(t TB, f Fixture) {
	f.TTL = cmp.Or(f.TTL, DefaultTTL)
	c.run(newEnv(t, f))
}

// Failures runs the case aside from any test and returns what it complains of: nothing if the rule is kept. It is for
// tests of the suite itself, which must find the faults of backends that are wrong on purpose.
func (c Case) Failures(f Fixture) []string {
	r := &recorder{name: c.Name}
	r.watch(func() { c.Check(r, f) })
	return r.failures
}
