package server

import (
	"fmt"
	"runtime"
	"slices"
)

// host stands in for the test that a starter of servers expects.
type host struct {
	cleanups []func()
	err      error
}

func (h *host) Helper() {}

func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// Fatalf keeps the message and ends the goroutine.
func (h *host) Fatalf(format string, args ...any) {
	h.err = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf is a failure: the program was asked for a table that needs the server.
func (h *host) Skipf(format string, args ...any) { h.Fatalf(format, args...) }

func (h *host) cleanUp() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

// onHost runs start, which starts servers as it would for a test. They stop with cleanUp, or at once after an error.
func onHost(start func(h *host)) (*host, error) {
	h, done := new(host), make(chan struct{})
	go func() { // which Fatalf ends
		defer close(done)
		start(h)
	}()
	<-done
	if h.err != nil {
		h.cleanUp()
		return nil, h.err
	}
	return h, nil
}
