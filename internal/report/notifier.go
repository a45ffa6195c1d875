package report

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Loggers, tracers and meters are foreign code: any of them may stall or panic. So they run on goroutines of their own,
// of which there are few, and nothing that holds a turn, a lease or a mutex waits for them: see notifier and attempts.
const (
	// patience is how long a call waits for foreign code in all: it is the most by which telemetry makes a call late, and
	// longer than any hook should take.
	patience = 10 * time.Millisecond
	// collectPatience is the same for a meter that collects: nobody waits for that but an exporter.
	collectPatience = 100 * time.Millisecond
	// closePatience bounds how long Close waits for reports after all else is done, if its context lets it.
	closePatience = time.Second
	// maxReports bounds the memory of a notifier that stands still. It is large enough for the bursts of a process that
	// reports a million times per second and does not run the notifier for some milliseconds.
	maxReports = 8192
	// keptReports is the room that an idle notifier keeps for the next reports.
	keptReports = 256
	// maxAttempts bounds the goroutines that foreign code, asked by callers, may occupy.
	maxAttempts = 64
	// maxStalled is more than one, because on a busy machine an attempt may be late by itself.
	maxStalled = 8
)

// Wait is how long a call has waited for foreign code so far, in microseconds.
type Wait uint16

// left is for how long it may wait yet (rule T10).
func (w Wait) left() time.Duration { return patience - time.Duration(w)*time.Microsecond }

// since notes that the call has waited since then.
func (w *Wait) since(begin time.Time) {
	*w += Wait(min(time.Since(begin), w.left()) / time.Microsecond)
}

// report is one thing to report, with all values it needs: when it is run, the caller may be elsewhere, and its hold is gone.
type report struct {
	run func(*report)

	telemetry      *telemetry
	ctx            context.Context
	call           *Call
	at             time.Time
	hold           trace.Span // that has ended; nil: none has begun
	why            Outcome    // of a refusal
	atBackend      bool       // it was refused there
	lost, degraded bool
}

// mishaps counts what went wrong in foreign code.
type mishaps struct {
	panics, dropped atomic.Uint64
	log             func(panicked any) // called for the first panic
}

// noteUnless is to be deferred around foreign code: it ends a panic there. A runtime.Goexit goes on.
func (m *mishaps) noteUnless(returned *bool) {
	what := recover()
	if *returned {
		return
	}
	if m.panics.Add(1) == 1 {
		m.log(what)
	}
}

// notifier runs reports one after the other on one goroutine, which exists while there are any. When maxReports of them
// are left, further ones are dropped, and counted (rule T10).
type notifier struct {
	*mishaps
	loop    func()       // work; as a field, so that starting it allocates nothing
	left    atomic.Int64 // reports that have not been run to their end
	stalled atomic.Bool  // somebody gave up waiting, and no report has been run since

	mu      sync.Mutex
	waiting []report // guarded by mu
	running bool     // guarded by mu

	batch, room []report // of the goroutine: what it has taken; and the array of that
}

// put queues a report. It neither blocks nor panics.
func (n *notifier) put(r report) {
	if !n.add(r, maxReports) {
		n.dropped.Add(1)
	}
}

// add queues a report unless limit of them are left.
func (n *notifier) add(r report, limit int64) bool {
	if n.left.Add(1) > limit {
		n.left.Add(-1)
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, r)
	if !n.running {
		n.running = true
		go n.loop()
	}
	return true
}

// work runs reports until there are none. If one ends the goroutine, another goroutine takes over.
func (n *notifier) work() {
	done := false
	defer func() {
		if !done {
			go n.loop()
		}
	}()
	for n.take() {
		n.runOne()
	}
	done = true
}

// take sees to it that batch is not empty, or else ends the running.
func (n *notifier) take() bool {
	if len(n.batch) > 0 {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		n.running = false
		if cap(n.waiting)+cap(n.room) > 2*keptReports {
			n.waiting, n.room = nil, nil
		}
		return false
	}
	n.batch, n.waiting, n.room = n.waiting, n.room[:0], n.waiting
	return true
}

func (n *notifier) runOne() {
	r := &n.batch[0]
	n.batch = n.batch[1:]
	returned := false
	defer func() {
		*r = report{}
		n.left.Add(-1)
	}()
	defer n.noteUnless(&returned)
	r.run(r)
	returned = true
	if n.stalled.Load() {
		n.stalled.Store(false)
	}
}

// yield is for callers that hold nothing any more: while the notifier is behind, they wait for it, while their patience
// lasts, because on a busy machine reports would be dropped though nothing stands still.
func (n *notifier) yield(w *Wait) {
	if n.left.Load() < maxReports/2 || n.stalled.Load() || w.left() <= 0 {
		return
	}
	defer w.since(time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), w.left())
	defer cancel()
	if n.flush(ctx, maxReports) > 0 {
		n.stalled.Store(true)
	}
}

// flush waits until all reports of before have been run, or ctx ends, and returns how many are left of them. Nor does it
// wait if limit of them are.
func (n *notifier) flush(ctx context.Context, limit int64) (left int64) {
	if n.left.Load() == 0 {
		return 0
	}
	flushed := make(chan struct{})
	if !n.add(report{run: func(*report) { close(flushed) }}, limit) {
		return n.left.Load()
	}
	select {
	case <-flushed:
		return 0
	case <-ctx.Done():
		return n.left.Load() - 1
	}
}

// attempts runs foreign code that a caller needs the answer of: beside the caller, which gives up in time. While
// maxStalled that were given up have not returned, no other is made (rule T10).
type attempts struct {
	*mishaps
	slots   chan struct{} // one for each under way
	stalled atomic.Int32  // given up, and still under way
}

const (
	underWay int32 = iota
	finished
	givenUp
)

// try reports whether f has run. If it has not within limit, late runs after it; one of the two outcomes, and only one.
func (a *attempts) try(limit time.Duration, f, late func()) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	if a.stalled.Load() >= maxStalled {
		runtime.Gosched() // on a busy machine those given up may only want for a processor, which callers in a hurry take from them
	}
	if a.stalled.Load() >= maxStalled || !a.enter(timer) {
		a.dropped.Add(1)
		return false
	}
	var state atomic.Int32
	var ran bool
	done := make(chan struct{})
	go func() {
		defer a.leave()
		defer func() {
			if !state.CompareAndSwap(underWay, finished) {
				a.stalled.Add(-1)
				if ran {
					a.protected(late)
				}
			}
			close(done)
		}()
		ran = a.protected(f)
	}()
	select {
	case <-done:
		return ran
	case <-timer.C:
	}
	if !state.CompareAndSwap(underWay, givenUp) { // it has just finished
		<-done
		return ran
	}
	a.stalled.Add(1)
	a.dropped.Add(1)
	return false
}

func (a *attempts) enter(timer *time.Timer) bool {
	select {
	case a.slots <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

func (a *attempts) leave() { <-a.slots }

// flush waits until no attempt is under way, or ctx ends, and returns how many are left that were given up.
func (a *attempts) flush(ctx context.Context) (left int64) {
	for range cap(a.slots) {
		select {
		case a.slots <- struct{}{}:
			defer a.leave()
		case <-ctx.Done():
			return int64(a.stalled.Load())
		}
	}
	return 0
}

func (a *attempts) protected(f func()) (returned bool) {
	defer a.noteUnless(&returned)
	f()
	return true
}
