package redislock

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// turnstile watches the holders of permits over many processes, in memory that they share. A holder that was killed or stopped
// counts until its lease ends. It knows nothing of the lock.
type turnstile struct {
	entries  atomic.Int64
	most     atomic.Int64  // inside at once
	over     atomic.Int64  // times that more were inside than there are permits
	behind   atomic.Int64  // fences that were not above one of a lease that had ended
	ended    atomic.Uint64 // the largest fence of those that left
	lost     atomic.Int64  // leases that ended before they were released
	errors   atomic.Int64
	gates    atomic.Int64 // handed out
	occupied [turnstileGates]atomic.Int64
}

// turnstileGates is how many contenders there may be, those of killed processes included.
const turnstileGates = 1 << 14

// openTurnstile maps the turnstile of this file, which is made for the first.
func openTurnstile(name string) (*turnstile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size := int(unsafe.Sizeof(turnstile{}))
	if err = f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*turnstile)(unsafe.Pointer(&memory[0])), nil // mapped until the process ends
}

// gate is where one contender enters.
func (s *turnstile) gate() *atomic.Int64 { return &s.occupied[s.gates.Add(1)-1] }

// enter notes that a holder is inside, at most until its lease ends, and counts.
func (s *turnstile) enter(gate *atomic.Int64, until time.Time, n int) {
	s.entries.Add(1)
	if time.Until(until) <= 0 {
		return // it was stopped meanwhile, and may not begin
	}
	gate.Store(time.Now().Add(time.Until(until)).UnixNano())
	if inside := s.count(n); inside > n {
		s.over.Add(1)
	} else if int64(inside) > s.most.Load() {
		s.most.Store(int64(inside))
	}
}

// count returns how many are inside. Holders come and go while it counts, so if they are more than n it returns those that it has
// seen twice: there was a moment in between at which all of them were inside.
func (s *turnstile) count(n int) int {
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
func (s *turnstile) inside(only []occupant) (all []occupant) {
	now := time.Now().UnixNano()
	if only != nil {
		for _, o := range only {
			if s.occupied[o.gate].Load() == o.until && o.until > now {
				all = append(all, o)
			}
		}
		return all
	}
	for i := range s.gates.Load() {
		if until := s.occupied[i].Load(); until > now {
			all = append(all, occupant{i, until})
		}
	}
	return all
}

// leave notes that a holder goes, before its permit is released.
func (s *turnstile) leave(gate *atomic.Int64, fence uint64) {
	gate.Store(0)
	for {
		old := s.ended.Load()
		if fence <= old || s.ended.CompareAndSwap(old, fence) {
			return
		}
	}
}

// The witness of the tests of fleets sees too many, and does not mistake one that follows another for two.
func TestTurnstileCounts(t *testing.T) {
	s, err := openTurnstile(t.TempDir() + "/gates")
	require.NoError(t, err)
	a, b, c := s.gate(), s.gate(), s.gate()
	soon := time.Now().Add(time.Minute)
	s.enter(a, soon, 2)
	s.enter(b, soon, 2)
	s.leave(a, 7)
	s.enter(c, soon, 2)
	s.enter(a, time.Now().Add(-time.Second), 2) // does not begin
	require.Zero(t, s.over.Load())
	s.enter(a, soon, 2)
	require.Equal(t, int64(1), s.over.Load())
	require.Equal(t, int64(2), s.most.Load())
	require.Equal(t, uint64(7), s.ended.Load())
	b.Store(time.Now().Add(-time.Second).UnixNano()) // was killed, and its lease has ended
	require.Equal(t, 2, s.count(1))
}
