package local_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/local"
)

// The stress test has many goroutines use a queue at random in every way, and counts. That no caller barges and the order
// is kept is shown, step by step, by the model test; here real threads race.
const (
	stressOps     = 10_000_000 // Enter, Again, Pass, Leave, Idle
	stressWorkers = 48
	stressKeys    = 5
	// stressPatience, in minutes, is many times what the test takes: when it has passed, a turn has been lost.
	stressPatience = 30
)

// ledger is the baton of the stress test: the holders.
type ledger struct {
	inside atomic.Int64 // -1: one exclusive; n: sharers
	turns  int          // of exclusive ones; guarded by the turn alone, so the race detector sees two holders
	check  atomic.Int64 // the same
}

// in adds a holder. It reports false if another should have excluded it.
func (l *ledger) in(shared bool) bool {
	if shared {
		return l.inside.Add(1) > 0
	}
	if !l.inside.CompareAndSwap(0, -1) {
		return false
	}
	l.turns++
	return l.check.Add(1) == int64(l.turns)
}

func (l *ledger) out(shared bool) {
	if shared {
		l.inside.Add(-1)
	} else {
		l.inside.Add(1)
	}
}

// stress is one run and its counters.
type stress struct {
	queue   *local.Queue[*ledger]
	waiting atomic.Int64

	ops                            atomic.Int64 // still to be done
	entered, left                  atomic.Int64 // turns acquired, turns given up
	canceled, timedOut, shed, busy atomic.Int64
	broken                         atomic.Pointer[string]
	unpinning                      sync.WaitGroup
}

func (s *stress) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.broken.CompareAndSwap(nil, &text)
	s.ops.Store(0)
}

func TestStress(t *testing.T) {
	seed := testseed.Seed(t)
	s := &stress{queue: local.New(func(string, int, *ledger) *ledger { return new(ledger) })}
	s.ops.Store(int64(testscope.Scale(stressOps/10, stressOps)))
	var all sync.WaitGroup
	for i := range stressWorkers {
		w := &worker{stress: s, rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		all.Go(w.work)
	}
	requireEnd(t, &all)
	s.unpinning.Wait()
	if text := s.broken.Load(); text != nil {
		t.Fatal(*text)
	}
	s.audit(t)
}

// requireEnd waits for all workers; one that waits for ever has lost a turn.
func requireEnd(t *testing.T, all *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Duration(testscope.Scale(stressPatience/10, stressPatience)) * time.Minute):
		t.Fatal("a turn was lost: a worker waits for ever")
	}
}

// audit checks the counters when all workers have returned.
func (s *stress) audit(t *testing.T) {
	t.Logf("turns %d, canceled %d, timed out %d, shed %d, busy %d", s.entered.Load(), s.canceled.Load(),
		s.timedOut.Load(), s.shed.Load(), s.busy.Load())
	for name, n := range map[string]*atomic.Int64{"canceled": &s.canceled, "timed out": &s.timedOut, "shed": &s.shed, "busy": &s.busy} {
		assert.Positive(t, n.Load(), "the run has not tried: %s", name)
	}
	assert.Equal(t, s.entered.Load(), s.left.Load(), "turns acquired and given up")
	assert.Zero(t, s.waiting.Load())
	s.queue.Each(func(key string, _ int, _ *ledger, n int) { t.Errorf("key %s still in use, %d waiting", key, n) })
	s.queue.Close()
	select {
	case <-s.queue.Drained():
	default:
		t.Error("not drained")
	}
	require.ErrorIs(t, s.queue.Enter(t.Context(), new(local.Turn[*ledger]), "k", local.Ask{}), local.ErrClosed)
}

type worker struct {
	*stress
	rand *rand.Rand
}

func (w *worker) work() {
	for w.ops.Load() > 0 {
		w.call()
	}
}

// percent is true in n of 100 cases.
func (w *worker) percent(n int) bool { return w.rand.IntN(100) < n }

func (w *worker) soon() time.Duration { return time.Duration(w.rand.IntN(300)) * time.Microsecond }

// call is one caller from Enter to its end.
func (w *worker) call() {
	key := fmt.Sprint(w.rand.IntN(stressKeys))
	if w.percent(2) {
		w.idle(key)
		return
	}
	a, turn := w.ask(), new(local.Turn[*ledger])
	ctx, cancel := w.context()
	defer cancel()
	w.ops.Add(-1)
	if w.refused(w.queue.Enter(ctx, turn, key, a)) {
		return
	}
	w.entered.Add(1)
	if w.inside(ctx, turn, key, a) {
		w.goes(turn)
	}
}

func (w *worker) ask() local.Ask {
	a := local.Ask{Shared: w.percent(40), NoWait: w.percent(5), Limit: local.Unlimited, Waiting: &w.waiting}
	if w.percent(20) {
		a.Limit = w.rand.IntN(stressWorkers / stressKeys)
	}
	if w.percent(15) {
		a.Deadline = time.Now().Add(w.soon())
	}
	return a
}

func (w *worker) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	if w.percent(15) {
		time.AfterFunc(w.soon(), cancel)
	}
	return ctx, cancel
}

func (w *worker) refused(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, context.Canceled):
		w.canceled.Add(1)
	case err == local.ErrTimeout:
		w.timedOut.Add(1)
	case err == local.ErrQueueFull:
		w.shed.Add(1)
	case err == local.ErrBusy:
		w.busy.Add(1)
	default:
		w.fail("unexpected: %v", err)
	}
	return true
}

// inside is what the holder does. It reports whether it still has the turn at the end.
func (w *worker) inside(ctx context.Context, turn *local.Turn[*ledger], key string, a local.Ask) bool {
	l := turn.Baton()
	if !l.in(a.Shared) {
		w.fail("key %s: two holders that exclude each other, shared %v", key, a.Shared)
	}
	if w.percent(3) {
		turn.Pin()
		w.unpinning.Add(1)
		time.AfterFunc(w.soon(), func() {
			defer w.unpinning.Done()
			w.queue.Unpin(key, 0)
		})
	}
	if a.Shared && w.percent(80) {
		turn.Share()
	}
	l.out(a.Shared)
	if a.Shared && w.percent(10) {
		return w.again(ctx, turn, a)
	}
	return true
}

func (w *worker) again(ctx context.Context, turn *local.Turn[*ledger], a local.Ask) bool {
	w.ops.Add(-1)
	if w.refused(turn.Again(ctx, a)) {
		w.left.Add(1)
		return false
	}
	l := turn.Baton()
	if !l.in(true) {
		w.fail("an exclusive holder beside one that entered again")
	}
	if w.percent(80) {
		turn.Share()
	}
	l.out(true)
	return true
}

// goes passes the turn on or leaves, sometimes while another goroutine does the same.
func (w *worker) goes(turn *local.Turn[*ledger]) {
	w.ops.Add(-1)
	switch {
	case w.percent(3):
		w.race(turn)
	case w.percent(20):
		w.gone(turn.Leave())
	default:
		w.pass(turn)
	}
	if turn.Leave() || turn.Pass() != local.Taken {
		w.fail("a turn was held after it was given up")
	}
}

func (w *worker) pass(turn *local.Turn[*ledger]) {
	switch turn.Pass() {
	case local.Taken:
		w.fail("a turn was taken, but no caller took it")
	case local.Passed:
		w.gone(true)
	case local.Kept: // then there is no other holder
		l := turn.Baton()
		if !l.in(false) {
			w.fail("another holder beside one that kept the turn")
		}
		l.out(false)
		w.gone(turn.Leave())
	}
}

func (w *worker) gone(ok bool) {
	if !ok {
		w.fail("the turn had gone")
	}
	w.left.Add(1)
}

// race has two goroutines leave at once; exactly one must win.
func (w *worker) race(turn *local.Turn[*ledger]) {
	other := make(chan bool)
	go func() { other <- turn.Leave() }()
	if mine := turn.Leave(); mine == <-other {
		w.fail("two calls of Leave with the same result: %v", mine)
	}
	w.left.Add(1)
}

// idle takes the turn of a key that may be pinned, as the end of an unused lease does.
func (w *worker) idle(key string) {
	turn := new(local.Turn[*ledger])
	w.ops.Add(-1)
	if !w.queue.Idle(turn, key, 0) {
		return
	}
	w.entered.Add(1)
	l := turn.Baton()
	if !l.in(false) {
		w.fail("the idle turn was not idle")
	}
	l.out(false)
	w.gone(turn.Leave())
}
