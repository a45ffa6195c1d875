package testproc

import (
	"fmt"
	"sync"
)

// Scope is the TB of servers that several tests share: it ends when its owner says so, in TestMain. Fatalf and Skipf panic
// with a [Failure].
type Scope struct {
	mu       sync.Mutex
	cleanups []func() // guarded by mu
}

// Failure is what a Scope panics with.
type Failure struct{ error }

func (s *Scope) Helper() {}

func (s *Scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *Scope) Fatalf(format string, args ...any) { panic(Failure{fmt.Errorf(format, args...)}) }

func (s *Scope) Skipf(format string, args ...any) { s.Fatalf(format, args...) }

// End runs the cleanups, last in, first out.
func (s *Scope) End() {
	s.mu.Lock()
	cleanups := s.cleanups
	s.cleanups = nil
	s.mu.Unlock()
	for last := len(cleanups) - 1; last >= 0; last-- {
		cleanups[last]()
	}
}
