package deadline_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/testseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newItem[T any](owner T) *deadline.Item[T] {
	it := new(deadline.Item[T])
	it.Owner = owner
	return it
}

// recorder writes down what fired when.
type recorder struct {
	start time.Time
	mu    sync.Mutex
	fired map[int]time.Duration
	calls [][]int
}

// recorded runs a test in a bubble, with a set whose items r writes down.
func recorded(t *testing.T, test func(t *testing.T, r *recorder, s *deadline.Set[int])) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{start: time.Now(), fired: make(map[int]time.Duration)}
		s := deadline.New(r.fire)
		defer s.Close()
		test(t, r, s)
	})
}

func (r *recorder) fire(now time.Time, due []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range due {
		r.fired[id] = now.Sub(r.start)
	}
	r.calls = append(r.calls, slices.Clone(due))
}

func TestFiresInOrderAndTogether(t *testing.T) {
	recorded(t, func(t *testing.T, r *recorder, s *deadline.Set[int]) {
		for id, after := range []time.Duration{5, 1, 3, 1, 4, -2} {
			s.Put(newItem(id), r.start.Add(after*time.Second))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, [][]int{{5}, {1, 3}, {2}, {4}, {0}}, sorted(r.calls))
		assert.Equal(t, map[int]time.Duration{
			5: 0, 1: time.Second, 3: time.Second, 2: 3 * time.Second, 4: 4 * time.Second, 0: 5 * time.Second,
		}, r.fired)
		assert.Zero(t, s.Len())
	})
}

func sorted(calls [][]int) [][]int {
	for _, c := range calls {
		slices.Sort(c)
	}
	return calls
}

func TestMovedItemFiresOnce(t *testing.T) {
	recorded(t, func(t *testing.T, r *recorder, s *deadline.Set[int]) {
		later, sooner := newItem(1), newItem(2)
		s.Put(later, r.start.Add(time.Second))
		s.Put(sooner, r.start.Add(time.Hour))
		s.Put(later, r.start.Add(time.Hour))
		s.Put(sooner, r.start.Add(time.Second))
		assert.Equal(t, 2, s.Len())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, [][]int{{2}, {1}}, r.calls)
	})
}

func TestRemove(t *testing.T) {
	recorded(t, func(t *testing.T, r *recorder, s *deadline.Set[int]) {
		it := newItem(1)
		assert.False(t, s.Remove(it), "never put")
		s.Put(it, r.start.Add(time.Second))
		assert.True(t, s.Remove(it))
		assert.False(t, s.Remove(it), "removed")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Empty(t, r.calls, "the timer woke for nothing")

		s.Put(it, time.Now().Add(time.Second))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, r.calls, 1, "it can be put again")
		assert.False(t, s.Remove(it), "fired")
	})
}

func TestFireMayPutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *deadline.Set[*int]
		ticks, it := 0, newItem[*int](nil)
		s = deadline.New(func(now time.Time, _ []*int) {
			ticks++
			s.Put(it, now.Add(time.Second))
		})
		s.Put(it, time.Now())
		time.Sleep(10*time.Second + time.Millisecond)
		s.Close()
		assert.Equal(t, 11, ticks)
	})
}

// A slow call of fire delays no other.
func TestFiresOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		s := deadline.New(func(time.Time, []int) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(10 * time.Second)
			running.Add(-1)
		})
		for i := range 3 {
			s.Put(newItem(i), time.Now().Add(time.Duration(i)*time.Second))
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		s.Close()
		assert.EqualValues(t, 3, most.Load())
		assert.Zero(t, running.Load(), "Close waits for the calls")
		assert.Equal(t, 7*time.Second, time.Since(start))
	})
}

func TestCloseDropsAll(t *testing.T) {
	recorded(t, func(t *testing.T, r *recorder, s *deadline.Set[int]) {
		it := newItem(1)
		s.Put(it, r.start.Add(time.Second))
		s.Close()
		s.Close()
		assert.False(t, s.Remove(it))
		s.Put(it, r.start.Add(time.Second))
		assert.Zero(t, s.Len())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, r.calls)
	})
}

// Of Remove and the timer exactly one gets the item.
func TestRemoveRacesTimer(t *testing.T) {
	var fired atomic.Int64
	s := deadline.New(func(_ time.Time, due []int) { fired.Add(int64(len(due))) })
	var removed atomic.Int64
	var all sync.WaitGroup
	const workers, rounds = 4, 2000
	seed := testseed.Seed(t)
	for w := range workers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			for range rounds {
				it := newItem(w)
				s.Put(it, time.Now().Add(time.Duration(rnd.IntN(20))*time.Microsecond))
				for range rnd.IntN(3) {
					runtime.Gosched()
				}
				if s.Remove(it) {
					removed.Add(1)
				}
			}
		})
	}
	all.Wait()
	s.Close()
	assert.EqualValues(t, workers*rounds, fired.Load()+removed.Load())
}

func FuzzAgainstModel(f *testing.F) {
	f.Add([]byte{0, 10, 1, 10, 2, 5, 0, 30, 100, 250, 251, 3, 3})
	f.Fuzz(func(t *testing.T, ops []byte) {
		recorded(t, func(t *testing.T, r *recorder, s *deadline.Set[int]) { runModel(t, r, s, ops) })
	})
}

func TestAgainstModel(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 100 {
		ops := make([]byte, 500)
		for i := range ops {
			ops[i] = byte(rnd.Uint32())
		}
		recorded(t, func(t *testing.T, r *recorder, s *deadline.Set[int]) { runModel(t, r, s, ops) })
	}
}

// runModel lets a Set and a plain map do the same: put or move an item, remove it, let time pass. Each pair of bytes is
// one step.
func runModel(t *testing.T, r *recorder, s *deadline.Set[int], ops []byte) {
	const items = 32
	all := make([]*deadline.Item[int], items)
	for i := range all {
		all[i] = newItem(i)
	}
	due := make(map[int]time.Duration)   // what waits
	fired := make(map[int]time.Duration) // when it must have fired last
	for ; len(ops) >= 2; ops = ops[2:] {
		now, id, arg := time.Since(r.start), int(ops[0])%items, time.Duration(ops[1])*time.Millisecond
		switch kind := ops[0] / items; {
		case kind < 4:
			due[id] = now + arg
			s.Put(all[id], r.start.Add(due[id]))
		case kind < 6:
			_, waits := due[id]
			require.Equal(t, waits, s.Remove(all[id]))
			delete(due, id)
		default:
			time.Sleep(arg / 4)
		}
		synctest.Wait() // what was due at once has fired
		for id, at := range due {
			if at <= time.Since(r.start) {
				fired[id] = max(at, now)
				delete(due, id)
			}
		}
		require.Equal(t, len(due), s.Len())
	}
	require.Equal(t, fired, r.fired)
}

func BenchmarkPutRemove(b *testing.B) {
	s := deadline.New(func(time.Time, []int) {})
	defer s.Close()
	it, at := newItem(1), time.Now().Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		s.Put(it, at)
		s.Remove(it)
	}
}

// BenchmarkAmongMany takes the first of 100,000 items out and puts it to the end, as renewals do. Items are as far apart
// as the leases they are part of.
func BenchmarkAmongMany(b *testing.B) {
	s := deadline.New(func(time.Time, []int) {})
	defer s.Close()
	const n = 100_000
	type lease struct {
		deadline.Item[int]
		_ [1000]byte
	}
	leases, order, start := make([]lease, n), rand.Perm(n), time.Now().Add(time.Hour)
	for i := range leases {
		s.Put(&leases[i].Item, start.Add(time.Duration(order[i])))
	}
	for i, k := range order {
		leases[k].Owner = i
	}
	for i := 0; b.Loop(); i++ {
		first := &leases[leases[i%n].Owner].Item
		s.Remove(first)
		s.Put(first, start.Add(time.Duration(n+i)))
	}
}
