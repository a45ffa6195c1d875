//go:build unix

package testproc

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Turnstile watches the holders of permits over many processes, in memory that they share. A holder that was killed or stopped
// counts until its lease ends. It knows nothing of the lock.
type Turnstile struct {
	Entries  atomic.Int64
	Most     atomic.Int64  // inside at once
	Over     atomic.Int64  // times that more were inside than there are permits
	Behind   atomic.Int64  // fences that were not above one of a lease that had ended
	Ended    atomic.Uint64 // the largest fence of those that left
	Lost     atomic.Int64  // leases that ended before they were released
	Errors   atomic.Int64
	Gates    atomic.Int64 // handed out
	occupied [TurnstileGates]atomic.Int64
}

// TurnstileGates is how many contenders there may be, those of killed processes included.
const TurnstileGates = 1 << 14

// OpenTurnstile maps the turnstile of this file, which is made for the first.
func OpenTurnstile(name string) (*Turnstile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size := int(unsafe.Sizeof(Turnstile{}))
	if err = f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*Turnstile)(unsafe.Pointer(&memory[0])), nil // mapped until the process ends
}

// Gate is where one contender enters.
func (s *Turnstile) Gate() *atomic.Int64 { return &s.occupied[s.Gates.Add(1)-1] }

// Enter notes that a holder is inside, at most until its lease ends, and counts.
func (s *Turnstile) Enter(gate *atomic.Int64, until time.Time, n int) {
	s.Entries.Add(1)
	if time.Until(until) <= 0 {
		return // it was stopped meanwhile, and may not begin
	}
	gate.Store(time.Now().Add(time.Until(until)).UnixNano())
	if inside := s.count(n); inside > n {
		s.Over.Add(1)
	} else if int64(inside) > s.Most.Load() {
		s.Most.Store(int64(inside))
	}
}

// count returns how many are inside. Holders come and go while it counts, so if they are more than n it returns those that it has
// seen twice: there was a moment in between at which all of them were inside.
func (s *Turnstile) count(n int) int {
	first := s.inside(nil)
	if len(first) <= n {
		return len(first)
	}
	return len(s.inside(first))
}

type occupant struct {
	gate  int64
	until int64
}

// inside returns who is, of those in only if that is not nil.
func (s *Turnstile) inside(only []occupant) (all []occupant) {
	now := time.Now().UnixNano()
	if only != nil {
		for _, o := range only {
			if s.occupied[o.gate].Load() == o.until && o.until > now {
				all = append(all, o)
			}
		}
		return all
	}
	for i := range s.Gates.Load() {
		if until := s.occupied[i].Load(); until > now {
			all = append(all, occupant{i, until})
		}
	}
	return all
}

// Leave notes that a holder goes, before its permit is released.
func (s *Turnstile) Leave(gate *atomic.Int64, fence uint64) {
	gate.Store(0)
	for {
		old := s.Ended.Load()
		if fence <= old || s.Ended.CompareAndSwap(old, fence) {
			return
		}
	}
}
