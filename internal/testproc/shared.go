package testproc

import (
	"errors"
	"sync"
)

// Shared are servers that live as long as the test binary runs the tests of its package, between the beginning and the end of Main's Run.
type Shared[S any] struct {
	mu      sync.Mutex
	running bool         // guarded by mu
	stop    []func()     // guarded by mu; last in, first out
	servers map[string]S // guarded by mu
}

// Main wraps the tests of a package. It stops the servers when all tests have ended.
func (s *Shared[S]) Main(m interface{ Run() int }) interface{ Run() int } { return sharing[S]{m, s} }

type sharing[S any] struct {
	m      interface{ Run() int }
	shared *Shared[S]
}

func (s sharing[S]) Run() int {
	s.shared.begin()
	defer s.shared.end()
	return s.m.Run()
}

func (s *Shared[S]) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.servers = true, make(map[string]S)
}

func (s *Shared[S]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for last := len(s.stop) - 1; last >= 0; last-- {
		s.stop[last]()
	}
	s.running, s.stop, s.servers = false, nil, nil
}

// Get returns the server of that name, and starts it unless it runs. Other tests wait meanwhile.
func (s *Shared[S]) Get(t TB, name string, start func(TB) S) S {
	t.Helper()
	server, failure := s.get(name, start)
	if failure != nil {
		t.Fatalf("%v", failure)
	}
	return server
}

func (s *Shared[S]) get(name string, start func(TB) S) (server S, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return server, errNoMain
	}
	if server, runs := s.servers[name]; runs {
		return server, nil
	}
	scope := new(Scope)
	defer func() {
		if p := recover(); p != nil {
			scope.End()
			f, ok := p.(Failure)
			if !ok {
				panic(p)
			}
			failure = f
		}
	}()
	server = start(scope)
	s.servers[name] = server
	s.stop = append(s.stop, scope.End)
	return server, nil
}

var errNoMain = Failure{errors.New("TestMain does not run its tests through Main")}
