package local_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/local"
)

// heap returns the memory in use after garbage collection.
func heap() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// settled returns a queue that already keeps what it keeps for good, so that this is not measured.
func settled(t *testing.T) *queue {
	q := newQueue()
	useOnce(t, q, 0, 10_000)
	hold(t, q, 0, 10_000)()
	return q
}

func useOnce(t *testing.T, q *queue, from, n int) {
	var turn local.Turn[*baton]
	for i := range n {
		if q.Enter(t.Context(), &turn, strconv.Itoa(from+i), exclusive) != nil || turn.Pass() != local.Kept || !turn.Leave() {
			t.Fatal("an uncontended key was not acquired")
		}
	}
}

// hold has n keys in use at the same time, until leave is called.
func hold(t *testing.T, q *queue, from, n int) (leave func()) {
	turns := make([]local.Turn[*baton], n)
	for i := range turns {
		require.NoError(t, q.Enter(t.Context(), &turns[i], strconv.Itoa(from+i), exclusive))
	}
	return func() {
		for i := range turns {
			turns[i].Leave()
		}
	}
}

// Unused keys take no memory, however many there have been.
func TestKeysLeaveNoMemory(t *testing.T) {
	const once, together = 1_000_000, 100_000
	for name, use := range map[string]func(q *queue){
		"used once":             func(q *queue) { useOnce(t, q, 0, once) },
		"used at the same time": func(q *queue) { hold(t, q, 0, together)() },
		"beside some that stay": func(q *queue) { stay(t, q, 4000, func() { hold(t, q, 4000, together)() }) },
	} {
		t.Run(name, func(t *testing.T) {
			q := settled(t)
			before := heap()
			use(q)
			after := heap()
			requireUnused(t, q)
			t.Logf("heap: %d KB before, %d KB after", before>>10, after>>10)
			assert.LessOrEqual(t, after, before+before/10)
			runtime.KeepAlive(q)
		})
	}
}

// stay keeps n keys in use while others come and go, and measures what the others leave behind.
func stay(t *testing.T, q *queue, n int, others func()) {
	leave := hold(t, q, 0, n)
	before := heap()
	others()
	after := heap()
	t.Logf("heap with %d keys in use: %d KB before, %d KB after", n, before>>10, after>>10)
	assert.LessOrEqual(t, after, before+before/4, "a map is replaced when it is an eighth full, so some room stays")
	leave()
}

// Giving up costs the same at every position: 100,000 waiters that give up together are gone within a second.
func TestAllWaitersCancelAtOnce(t *testing.T) {
	const waiters = 100_000
	q := newQueue()
	var holder local.Turn[*baton]
	require.NoError(t, q.Enter(t.Context(), &holder, "k", exclusive))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	turns := make([]local.Turn[*baton], waiters)
	for i := range turns {
		all.Go(func() {
			if err := q.Enter(ctx, &turns[i], "k", exclusive); err != context.Canceled {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < waiters; _, waiting = inUse(q) {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	cancel()
	all.Wait()
	took := time.Since(start)
	t.Logf("%d waiters gone within %v", waiters, took)
	limit := time.Second
	if race.Enabled {
		limit *= 5
	}
	testscope.InTime(t, took, limit, "giving up")
	require.Equal(t, local.Kept, holder.Pass(), "no waiter is left")
	holder.Leave()
	requireUnused(t, q)
}

func TestFreeKeyAllocatesNothing(t *testing.T) {
	q, ctx := local.New(func(string, int, int) int { return 0 }), t.Context()
	var turn local.Turn[int]
	use := func(leave func()) float64 {
		return testing.AllocsPerRun(1000, func() {
			if err := q.Enter(ctx, &turn, "order:product:1000", local.Ask{Limit: 1000}); err != nil {
				t.Fatal(err)
			}
			leave()
		})
	}
	assert.Zero(t, use(func() { turn.Leave() }), "Enter, Leave")
	assert.Zero(t, use(func() { turn.Pass(); turn.Leave() }), "Enter, Pass, Leave")
	assert.Zero(t, use(func() { turn.Share(); turn.Leave() }), "Enter, Share, Leave")
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	i := 0
	assert.Zero(t, testing.AllocsPerRun(10_000, func() {
		i++
		_ = q.Enter(ctx, &turn, keys[i%len(keys)], local.Ask{})
		turn.Leave()
	}), "changing keys")
}
