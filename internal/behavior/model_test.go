package behavior

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// The model test has three instances serve callers of several guards of one key at random: with waits, cancellations, errors,
// panics, functions that overstay or hang, and leases that are lost. A store that checks fences, as a database would, notes what
// was done, and each caller compares that with what it was told.
const (
	modelCalls     = 1_000_000
	modelEpisode   = 500 // calls with one set of Lockers
	modelThreshold = 12
)

func TestModelOfBatches(t *testing.T) {
	seed, calls := testseed.Seed(t), testscope.Scale(modelCalls/100, modelCalls)
	var all modelCounts
	for episode := range calls / modelEpisode {
		synctest.Test(t, func(t *testing.T) { newBatchModel(t, seed, uint64(episode), &all).run() })
		if t.Failed() {
			t.Fatalf("episode %d", episode)
		}
	}
	for what, n := range map[string]int64{"done": all.done.Load(), "ran": all.ran.Load(), "refused": all.refused.Load(),
		"panicked": all.panicked.Load(), "failed": all.failed.Load(), "rode": all.rode.Load(), "lost": all.lost.Load()} {
		require.Positive(t, n, "calls that %s", what)
		t.Logf("%d %s", n, what)
	}
}

// modelCounts shows that a run has come by all outcomes.
type modelCounts struct{ done, ran, refused, panicked, failed, rode, lost atomic.Int64 }

type batchModel struct {
	t      *testing.T
	counts *modelCounts
	losing bool // leases are lost in this episode; if not, batches exclude each other without the help of fences
	shops  []*modelShop
	back   *memlock.Backend
	calls  sync.WaitGroup

	mu     sync.Mutex // guards all below
	rand   *rand.Rand
	fence  uint64 // of the latest claim
	inside int
}

// modelShop is one instance with its guards.
type modelShop struct {
	m      *batchModel
	locker *wllock.Locker
	guards []func(context.Context, *modelOrder) (int, error)
	last   int // the step of the latest caller that was served; guarded by m.mu
}

// modelOrder is a call and what became of it.
type modelOrder struct {
	id, step  int // steps are so far apart that the callers of one stand in line before those of the next come
	ran, done int // guarded by m.mu
}

var errModelItem, errModelBatch, errModelStale = errors.New("item"), errors.New("batch"), errors.New("stale")

func newBatchModel(t *testing.T, seed, episode uint64, all *modelCounts) *batchModel {
	m := &batchModel{t: t, counts: all, rand: rand.New(rand.NewPCG(seed, episode)), back: memlock.New()}
	m.losing = episode%2 == 1
	opts := []wllock.Option{wllock.WithThreshold(modelThreshold), wllock.WithMaxHandoffs(m.rand.IntN(20)),
		wllock.WithDefaults(wllock.WithMaxBatch(1+m.rand.IntN(10)), wllock.WithLockTimeMax(20*time.Millisecond))}
	for range 3 {
		s := &modelShop{m: m, locker: lockerOn(t, m.back, opts...)}
		for _, own := range [][]wllock.CallOption{nil, {wllock.WithMaxBatch(wllock.Unlimited)}, {wllock.WithWait(15 * time.Millisecond)},
			{wllock.NoWait()}, {wllock.WithShedHopeless(), wllock.WithWait(10 * time.Millisecond)}} {
			s.guards = append(s.guards, wllock.WrapBatch(s.locker, "n", func(*modelOrder) string { return "k" }, s.serve, own...))
		}
		m.shops = append(m.shops, s)
	}
	return m
}

func (m *batchModel) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

func (m *batchModel) run() {
	for id, step := 0, 0; id < modelEpisode; step++ {
		shop, guard := m.shops[m.intn(len(m.shops))], m.intn(len(m.shops[0].guards)+1)
		for range 1 + m.intn(6) {
			if m.intn(5) == 0 { // else a run of one guard
				shop, guard = m.shops[m.intn(len(m.shops))], m.intn(len(m.shops[0].guards)+1)
			}
			order, by, with := &modelOrder{id: id, step: step}, shop, guard
			id++
			m.calls.Go(func() { by.order(order, with) })
		}
		synctest.Wait()
		for _, s := range m.shops {
			require.LessOrEqual(m.t, s.locker.Stats().Total.Waiting, int64(modelThreshold))
		}
		if m.losing && m.intn(20) == 0 {
			m.back.Expire("test:n:k")
		}
		if m.intn(4) > 0 {
			time.Sleep(time.Duration(m.intn(10_000)) * time.Microsecond)
		}
	}
	m.calls.Wait()
	synctest.Wait()
	for _, s := range m.shops {
		require.NoError(m.t, s.locker.Close(m.t.Context())) // functions whose callers have left may still run
		total := s.locker.Stats().Total
		require.Zero(m.t, total.Waiting)
		require.Zero(m.t, total.Held)
		require.Empty(m.t, s.locker.Locks(1))
		m.counts.rode.Add(int64(total.Batched))
		m.counts.lost.Add(int64(total.Lost))
	}
}

// order makes one call, by a guard or a plain Call, and checks what it was told.
func (s *modelShop) order(o *modelOrder, guard int) {
	m := s.m
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if m.intn(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+m.intn(30_000))*time.Microsecond)
		defer cancel()
	}
	exited := true
	defer func() {
		if p := recover(); p != nil || exited {
			_, ok := p.(*wllock.BatchPanic)
			m.check(o, ok || exited && p == nil, "panicked", 1, 0, &m.counts.panicked, p)
		}
	}()
	var result int
	var err error
	if guard < len(s.guards) {
		result, err = s.guards[guard](ctx, o)
	} else {
		result, err = wllock.Call(ctx, s.locker, "n", "k", func(ctx context.Context) (int, error) {
			one := &wllock.Item[*modelOrder, int]{Arg: o}
			if err := s.work(ctx, []*wllock.Item[*modelOrder, int]{one}, false); err != nil {
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
	case err == nil:
		m.check(o, result == o.id, "was served", 1, 1, &m.counts.done, result)
	case err == errModelItem:
		m.check(o, true, "was refused by the function", 1, 1, &m.counts.done, err)
	case e != nil && e.Ran:
		m.check(o, true, "left or lost its lock", -1, -1, &m.counts.ran, err)
	case errors.Is(err, errModelBatch), errors.Is(err, errModelStale), e == nil: // the last is its context's error, of a plain call
		m.check(o, true, "failed", 1, 0, &m.counts.failed, err)
	default:
		m.check(o, e != nil, "was not let in", 0, 0, &m.counts.refused, err)
	}
}

// check compares what became of an order with what should have; -1: nobody knows yet. Nothing ever happens twice.
func (m *batchModel) check(o *modelOrder, ok bool, what string, ran, done int, count *atomic.Int64, detail any) {
	count.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok || ran >= 0 && o.ran != ran || done >= 0 && o.done != done {
		m.t.Errorf("order %d %s (%v): ran %d times, done %d times", o.id, what, detail, o.ran, o.done)
	}
}

func (s *modelShop) serve(ctx context.Context, batch []*wllock.Item[*modelOrder, int]) error {
	return s.work(ctx, batch, true)
}

// work is a transaction of the shop: claim, think, commit.
func (s *modelShop) work(ctx context.Context, batch []*wllock.Item[*modelOrder, int], mayPanic bool) error {
	m := s.m
	held, _ := wllock.HeldFrom(ctx)
	fate, stale := s.claim(held.Fence(), batch)
	defer func() {
		m.mu.Lock()
		m.inside--
		m.mu.Unlock()
	}()
	if stale != nil {
		return stale
	}
	switch think := time.Duration(m.intn(3000)) * time.Microsecond; {
	case fate < 5:
		return errModelBatch
	case fate < 8 && mayPanic:
		panic("model")
	case fate < 9 && mayPanic:
		runtime.Goexit()
	case fate < 10: // stays until its context ends
		<-ctx.Done()
		return ctx.Err()
	case fate < 11: // stays for longer than any lease
		time.Sleep(3 * ttl)
	default:
		time.Sleep(think)
	}
	return s.commit(held.Fence(), batch)
}

// claim notes that the batch has begun, and checks its place in the order of arrival.
func (s *modelShop) claim(fence uint64, batch []*wllock.Item[*modelOrder, int]) (fate int, stale error) {
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
	fate = m.rand.IntN(100)
	if fate == 10 && m.rand.IntN(20) > 0 { // it takes as long as hundreds of others
		fate = 50
	}
	return fate, stale
}

// commit carries the batch out, unless a later one has claimed the store.
func (s *modelShop) commit(fence uint64, batch []*wllock.Item[*modelOrder, int]) error {
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
