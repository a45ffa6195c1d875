package behavior

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
)

// Three instances serve callers of several guards. A store that checks fences, as a database would, notes what was done, and each caller
// compares that with what it was told.
func TestModelOfBatches(t *testing.T) {
	episodes(t, testscope.Scale(20, 2000), func(m *model) { newBatchModel(m).run() },
		"done", "ran", "refused", "panicked", "failed", "rode", "lost")
}

const modelThreshold = 12

type batchModel struct {
	*model
	shops  []*modelShop
	fence  uint64 // of the latest claim
	inside int
}

// modelShop is one instance with its guards.
type modelShop struct {
	m      *batchModel
	locker *wllock.Locker
	guards []func(context.Context, *modelOrder) (int, error)
	last   int // the step of the latest caller that was served; guarded by model.mu
}

// modelOrder is a call and what became of it.
type modelOrder struct {
	id, step  int
	ran, done int // guarded by model.mu
}

type modelBatch = []*wllock.Item[*modelOrder, int]

var errModelItem, errModelBatch, errModelStale = errors.New("item"), errors.New("batch"), errors.New("stale")

func newBatchModel(of *model) *batchModel {
	m := &batchModel{model: of}
	m.losing = m.seed%2 == 1 // if not, batches exclude each other without the help of fences
	opts := []wllock.Option{wllock.WithThreshold(modelThreshold), wllock.WithMaxHandoffs(m.intn(20)),
		wllock.WithDefaults(wllock.WithMaxBatch(1+m.intn(10)), wllock.WithLockTimeMax(20*time.Millisecond))}
	for range 3 {
		s := &modelShop{m: m, locker: lockerOn(m.t, m.back, opts...)}
		for _, own := range [][]wllock.CallOption{nil, {wllock.WithMaxBatch(wllock.Unlimited)}, {wllock.WithWait(15 * time.Millisecond)},
			{wllock.NoWait()}, {wllock.WithShedHopeless(), wllock.WithWait(10 * time.Millisecond)}} {
			s.guards = append(s.guards, wllock.WrapBatch(s.locker, "n", func(*modelOrder) string { return "k" }, s.serve, own...))
		}
		m.shops, m.lockers = append(m.shops, s), append(m.lockers, s.locker)
	}
	return m
}

func (m *batchModel) run() {
	var by *modelShop
	guard, at, id := 0, -1, 0
	m.model.run(6, func(step int) func() {
		if step != at || m.intn(5) == 0 { // else a run of one guard
			by, guard, at = m.shops[m.intn(3)], m.intn(len(m.shops[0].guards)+1), step
		}
		id++
		shop, with, order := by, guard, &modelOrder{id: id, step: step}
		return func() { shop.order(order, with) }
	}, func() {
		for _, l := range m.lockers {
			require.LessOrEqual(m.t, l.Stats().Total.Waiting, int64(modelThreshold))
		}
	})
}

// order makes one call, by a guard or a plain Call, and checks what it was told.
func (s *modelShop) order(o *modelOrder, guard int) {
	ctx, cancel := s.m.context(3, 30*time.Millisecond)
	defer cancel()
	exited := true
	defer func() {
		if p := recover(); p != nil || exited {
			_, ok := p.(*wllock.BatchPanic)
			s.m.check(o, ok || exited && p == nil, "panicked", 1, 0, p)
		}
	}()
	var result int
	var err error
	if guard < len(s.guards) {
		result, err = s.guards[guard](ctx, o)
	} else {
		result, err = wllock.Call(ctx, s.locker, "n", "k", func(ctx context.Context) (int, error) {
			one := &wllock.Item[*modelOrder, int]{Arg: o}
			if err := s.work(ctx, modelBatch{one}, false); err != nil {
				return 0, err
			}
			return one.Result, one.Err
		})
	}
	exited = false
	s.m.judge(o, result, err)
}

func (m *batchModel) judge(o *modelOrder, result int, err error) {
	e, _ := errors.AsType[*wllock.Error](err)
	switch {
	case err == nil, err == errModelItem:
		m.check(o, result == o.id, "done", 1, 1, err)
	case e != nil && e.Ran: // it left, or lost its lock
		m.check(o, true, "ran", -1, -1, err)
	case errors.Is(err, errModelBatch), errors.Is(err, errModelStale), e == nil: // the last is its context's error, of a plain call
		m.check(o, true, "failed", 1, 0, err)
	default:
		m.check(o, true, "refused", 0, 0, err)
	}
}

// check compares what became of an order with what should have; -1: nobody knows yet. Nothing ever happens twice.
func (m *batchModel) check(o *modelOrder, ok bool, what string, ran, done int, detail any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
	if !ok || ran >= 0 && o.ran != ran || done >= 0 && o.done != done {
		m.t.Errorf("order %d %s (%v): ran %d times, done %d times", o.id, what, detail, o.ran, o.done)
	}
}

func (s *modelShop) serve(ctx context.Context, batch modelBatch) error {
	return s.work(ctx, batch, true)
}

// work is a transaction of the shop: claim, think, commit.
func (s *modelShop) work(ctx context.Context, batch modelBatch, mayPanic bool) error {
	m := s.m
	held, _ := wllock.HeldFrom(ctx)
	stale := s.claim(held.Fence(), batch)
	defer func() {
		m.mu.Lock()
		m.inside--
		m.mu.Unlock()
	}()
	if stale != nil {
		return stale
	}
	switch fate := m.intn(2000); {
	case fate < 100:
		return errModelBatch
	case fate < 160 && mayPanic:
		panic("model")
	case fate < 180 && mayPanic:
		runtime.Goexit()
	case fate < 200: // stays until its context ends
		<-ctx.Done()
		return ctx.Err()
	case fate == 200: // stays for longer than any lease, which takes as long as hundreds of others
		time.Sleep(3 * ttl)
	default:
		time.Sleep(m.upTo(3 * time.Millisecond))
	}
	return s.commit(held.Fence(), batch)
}

// claim notes that the batch has begun, and checks its place in the order of arrival.
func (s *modelShop) claim(fence uint64, batch modelBatch) (stale error) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inside++; m.inside > 1 && !m.losing && m.fence > fence {
		m.t.Errorf("two batches at the same time")
	}
	for _, i := range batch {
		if i.Arg.ran++; i.Arg.step < s.last || i.Arg.ran > 1 {
			m.t.Errorf("order %d of step %d was served after one of step %d, %d times", i.Arg.id, i.Arg.step, s.last, i.Arg.ran)
		}
		s.last = i.Arg.step
	}
	if fence <= m.fence {
		if !m.losing {
			m.t.Errorf("fence %d after %d", fence, m.fence)
		}
		stale = errModelStale
	}
	m.fence = max(m.fence, fence)
	return stale
}

// commit carries the batch out, unless a later one has claimed the store.
func (s *modelShop) commit(fence uint64, batch modelBatch) error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fence != fence {
		return errModelStale
	}
	for _, i := range batch {
		i.Arg.done++
		i.Result = i.Arg.id
		if m.rand.IntN(20) == 0 {
			i.Err = errModelItem
		}
	}
	return nil
}

// TestStaysInAnyOrder lets processes that die, are closed and are cut off from the backend call with and without WithHoldAtLeast.
func TestStaysInAnyOrder(t *testing.T) { // rules N1 to N3
	episodes(t, testscope.Scale(30, 2000), func(m *model) { (&stayModel{model: m, until: time.Now()}).run() }, "stays")
}

type stayModel struct {
	*model
	until time.Time // nobody may be inside before
}

// run has processes, one after the other in three lines, make calls for a minute.
func (m *stayModel) run() {
	end := time.Now().Add(time.Minute)
	for range 3 {
		m.calls.Go(func() {
			for time.Now().Before(end) {
				m.process(end)
			}
		})
	}
	for time.Now().Before(end) {
		time.Sleep(m.upTo(10 * time.Second))
		m.back.Partition(true)
		time.Sleep(m.upTo(2 * ttl))
		m.back.Partition(false)
	}
	m.calls.Wait()
	time.Sleep(time.Minute)
	require.NoError(m.t, lockerOn(m.t, m.back).Do(m.t.Context(), "n", "k", nothing, wllock.NoWait()), "free in the end")
}

// process makes calls until it dies, or is closed.
func (m *stayModel) process(end time.Time) {
	b := &mortal{Backend: m.back}
	l, err := wllock.New("test", b, wllock.WithLeaseTTL(ttl))
	require.NoError(m.t, err)
	ctx, exit := context.WithTimeout(m.t.Context(), min(m.upTo(20*time.Second), time.Until(end)+1))
	defer exit()
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			for ctx.Err() == nil {
				m.call(ctx, l)
				time.Sleep(m.upTo(time.Second))
			}
		})
	}
	<-ctx.Done()
	if m.intn(2) == 0 {
		b.die()
	}
	assert.NoError(m.t, l.Close(context.Background()))
	calls.Wait()
}

// call makes a call that lasts for a while, maybe with a guard inside, and notes until when nobody may be inside.
func (m *stayModel) call(ctx context.Context, l *wllock.Locker) {
	least, most := time.Duration(0), []time.Duration{0, time.Second, 10 * time.Second}[m.intn(3)]
	opts := []wllock.CallOption{wllock.WithLockTimeMax(most), wllock.WithWait(m.upTo(5 * time.Second))}
	if m.intn(3) > 0 {
		least = m.upTo(4 * time.Second)
		opts = append(opts, wllock.WithHoldAtLeast(least))
	}
	if m.intn(2) == 0 {
		opts = append(opts, wllock.NoWait())
	}
	_ = l.Do(ctx, "n", "k", func(in context.Context) error {
		m.enter(least)
		if m.intn(4) == 0 {
			_ = l.Do(in, "n", "k", nothing, opts...)
		}
		select {
		case <-in.Done():
		case <-time.After(m.upTo(2*time.Second) * time.Duration(m.intn(2))):
		}
		return nil
	}, opts...)
}

// enter checks that nobody is inside before the time has passed that the one before asked for.
func (m *stayModel) enter(least time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	assert.False(m.t, now.Before(m.until), "inside %v too early", m.until.Sub(now))
	m.until = now.Add(least)
	if least > 0 {
		m.counts["stays"]++
	}
}
