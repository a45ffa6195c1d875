package wllocktest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock"
)

// OverlapOption is a setting of Overlap.
type OverlapOption func(*overlap)

// OverlapLocks names the locks that are held (default: one lock of an arbitrary name).
func OverlapLocks(locks ...wllock.Resource) OverlapOption {
	return func(o *overlap) { o.locks = locks }
}

// OverlapBefore makes Overlap call reset before each schedule, to restore the initial data.
func OverlapBefore(reset func(ctx context.Context) error) OverlapOption {
	return func(o *overlap) { o.reset = reset }
}

// OverlapTwice also tries schedules with two switches: the later holder stops before one of its statements, too, while the first one runs to its
// end. Their number is the product of both numbers of statements.
func OverlapTwice() OverlapOption { return func(o *overlap) { o.twice = true } }

const (
	// blocked is how long a statement takes at least that waits for one of the holder that stands still.
	blocked = 200 * time.Millisecond
	// overlapTTL is long: neither holder notices the loss of its lock by itself.
	overlapTTL = time.Minute
)

// Overlap tests whether code checks its fences. It calls run for two holders of the same lock at a time, as after a pause. The first holder
// stops before a statement, and its lease ends. The second one gets the lock, and runs to its end, or until it waits for the first one in the
// database. Then the first one continues, because it has not noticed. After both, check inspects the data. Overlap does so for each statement of
// the first holder. For each error of check it fails the test, and names the statement.
//
// db must come from OpenDB, and run must use it with the context that it gets, which carries the lock. A transaction of package fenced passes.
// Code that reads, decides and writes without a fence does not. An error of run is no failure, unless both holders have one.
func Overlap(t testing.TB, db *sql.DB, run, check func(ctx context.Context) error, opts ...OverlapOption) {
	t.Helper()
	w, ok := db.Driver().(*watched)
	if !ok {
		t.Fatal("wllocktest: Overlap needs a database of OpenDB, which sees its statements")
	}
	o := &overlap{t: t, w: w, run: run, locks: []wllock.Resource{{Name: "overlap", Key: "1"}}}
	for _, opt := range opts {
		opt(o)
	}
	for n := 1; ; n++ {
		for m := 0; ; m++ {
			first, second, ran := o.schedule(n, m)
			if first == "" && n == 1 {
				t.Fatal("wllocktest: Overlap has seen no statement: the function has to use the database that it is given")
			}
			if first == "" {
				return
			}
			if m > 0 && second == "" {
				break
			}
			where := "paused before " + first
			if m > 0 {
				where += ", and the later holder before " + second
			}
			if err := check(t.Context()); err != nil {
				t.Errorf("wllocktest: %s: %v", where, err)
			} else if ran != nil {
				t.Errorf("wllocktest: %s: both holders have failed: %v", where, ran)
			}
			if !o.twice {
				break
			}
		}
	}
}

type overlap struct {
	t     testing.TB
	w     *watched
	run   func(ctx context.Context) error
	reset func(ctx context.Context) error
	locks []wllock.Resource
	twice bool
}

// schedule stops the first holder before its statement n, and the second one before its statement m, and returns these, shortened. m = 0: the
// second one is not stopped. "": there is no such statement. failed: none of the two has succeeded.
func (o *overlap) schedule(n, m int) (first, second string, failed error) {
	o.t.Helper()
	if o.reset != nil {
		if err := o.reset(o.t.Context()); err != nil {
			o.t.Fatalf("wllocktest: Overlap: %v", err)
		}
	}
	one, faults := NewWithFaults(o.t, wllock.WithLeaseTTL(overlapTTL), wllock.WithDefaults(wllock.WithLockTimeMax(0)))
	two := faults.Process(wllock.WithLeaseTTL(overlapTTL), wllock.WithDefaults(wllock.WithLockTimeMax(0)))
	a, b := newStopped(n), newStopped(m)
	answers := make(chan error, 2)
	hold := func(l *wllock.Locker) {
		answers <- l.DoAll(o.t.Context(), o.locks, o.run)
	}
	o.w.before.Store(&a.before)
	defer o.w.before.Store(nil)
	go hold(one)
	select {
	case first = <-a.at:
	case err := <-answers: // it has no such statement
		return "", "", err
	}
	for _, lock := range o.locks {
		faults.Lose(lock.Name, lock.Key)
	}
	o.w.before.Store(&b.before)
	go hold(two)
	second, errs := b.ends(answers)
	o.w.before.Store(&a.before)
	close(a.goOn)
	if second != "" {
		_, errs = a.ends(answers)
	}
	close(b.goOn)
	for len(errs) < 2 {
		errs = append(errs, <-answers)
	}
	if errs[0] != nil && errs[1] != nil {
		failed = fmt.Errorf("%w, and %w", errs[0], errs[1])
	}
	return first, second, failed
}

// stopped stops a holder before a statement.
type stopped struct {
	n    int           // of its statements
	at   chan string   // says before which it stands
	goOn chan struct{} // closed when it may go on

	before func(statement string) // begins, for the database

	mu    sync.Mutex // guards all below
	count int
	last  time.Time // when the last statement began
}

func newStopped(n int) *stopped {
	s := &stopped{n: n, at: make(chan string, 1), goOn: make(chan struct{}), last: time.Now()}
	s.before = s.begins
	return s
}

// begins is called before each statement of the holder.
func (s *stopped) begins(statement string) {
	s.mu.Lock()
	s.count++
	s.last = time.Now()
	stop := s.count == s.n
	s.mu.Unlock()
	if stop {
		s.at <- strings.Join(strings.Fields(statement), " ")
		<-s.goOn
	}
}

// ends waits until the holder has an answer, stands before its statement, or waits for another holder: then it begins no statement for long.
func (s *stopped) ends(answers <-chan error) (at string, errs []error) {
	for {
		s.mu.Lock()
		left := time.Until(s.last.Add(blocked))
		s.mu.Unlock()
		if left <= 0 {
			return "", nil
		}
		select {
		case at = <-s.at:
			return at, nil
		case err := <-answers:
			return "", []error{err}
		case <-time.After(left):
		}
	}
}
