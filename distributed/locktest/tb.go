package locktest

import (
	"fmt"
	"runtime"
	"sync"
)

// TB is the part of *testing.T that a case needs. Unlike testing.TB it can be implemented by others.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
}

// recorder is a TB that records failures.
type recorder struct {
	name string

	mu       sync.Mutex // guards all below while the case runs
	failures []string
	cleanups []func()
}

// watch runs fn on a goroutine that Fatalf can end, and then the cleanups.
func (r *recorder) watch(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		fn()
	}()
	<-done
}

func (r *recorder) cleanUp() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		fn := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		fn()
	}
}

func (r *recorder) Helper()             {}
func (r *recorder) Name() string        { return r.name }
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Cleanup(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, fn)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(string, ...any) { runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}
