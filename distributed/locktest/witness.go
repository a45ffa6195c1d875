package locktest

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// witness is a Watcher that records its notifications, with room for ones that must not come.
type witness struct {
	lost      chan distributed.Lease
	contended chan distributed.Lease
	released  chan error
}

func newWitness() *witness {
	return &witness{
		lost:      make(chan distributed.Lease, 8),
		contended: make(chan distributed.Lease, 8),
		released:  make(chan error, 8),
	}
}

func (w *witness) LeaseLost(l distributed.Lease)                  { w.lost <- l }
func (w *witness) LeaseContended(l distributed.Lease)             { w.contended <- l }
func (*witness) LeaseRenewed(distributed.Lease, time.Time, error) {}

func (w *witness) LeaseReleased(_ distributed.Lease, err error) { w.released <- err }

// notified waits until the witness has been notified about this lease.
func (e *env) notified(what string, of chan distributed.Lease, l distributed.Lease) {
	e.Helper()
	select {
	case got := <-of:
		if got != l {
			e.Errorf("the watcher was notified that another lease is %s", what)
		}
	case <-time.After(patience):
		e.Fatalf("the watcher was not notified within %v that its lease is %s", patience, what)
	}
}

// watch attaches a witness to the lease.
func (e *env) watch(l distributed.Lease) (distributed.Lease, *witness) {
	w := newWitness()
	l.Watch(w, l)
	return l, w
}

// contended waits until the holder knows that another instance waits.
func (e *env) contended(l distributed.Lease, w *witness) {
	e.Helper()
	e.eventually("the lease is contended", l.Contended)
	e.notified("contended", w.contended, l)
}
