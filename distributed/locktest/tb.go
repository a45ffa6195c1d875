package locktest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
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

// skips counts the cases that were skipped, by reason.
type skips struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu
}

func (s *skips) log(t TB) {
	for _, why := range slices.Sorted(maps.Keys(s.count)) {
		t.Logf("%d rules not checked: %s", s.count[why], why)
	}
}

// counted is a TB whose skips are counted.
type counted struct {
	TB
	skips *skips
}

func (c counted) Skipf(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	c.skips.mu.Lock()
	c.skips.count[why]++
	c.skips.mu.Unlock()
	c.TB.Skipf("%s", why)
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
