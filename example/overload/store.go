package main

import (
	"errors"
	"sync"
)

var errOvertaken = errors.New("a later holder has written")

// store is what the lock protects. Each hold writes once, with its fence: that of a holder which was overtaken is refused.
type store struct {
	mu     sync.Mutex
	fence  uint64 // guarded by mu: the highest so far
	orders int    // guarded by mu
}

func (s *store) write(fence uint64, orders int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fence <= s.fence {
		return errOvertaken
	}
	s.fence = fence
	s.orders += orders
	return nil
}
