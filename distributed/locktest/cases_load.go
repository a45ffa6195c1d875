package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

var loadCases = []Case{
	{"exclusion under load", load},
	{"exclusion under load of readers and writers", loadMixed},
	{"exclusion under load with prev", loadPrev},
	{"canceling and leaving at any time leaves nothing", cancels},
	{"an enter with a dead context leaves nothing", deadContext},
}

const (
	loadMembers = 8
	loadRounds  = 40
)

// inside counts the holders of a lock, to check exclusion.
type inside struct {
	*env
	writers, readers atomic.Int32
	fence            atomic.Uint64 // of the last writer
}

// work is what a holder does: it checks exclusion, and pauses so that others try to get in.
func (in *inside) work(mode distributed.Mode, l distributed.Lease) {
	mine := &in.readers
	if mode == distributed.Exclusive {
		mine = &in.writers
	}
	mine.Add(1)
	if n, ok := l.NextFence(); ok && n <= in.fence.Load() {
		in.Errorf("fence %d after %d", n, in.fence.Load())
	} else if ok && mode == distributed.Exclusive {
		in.fence.Store(n)
	}
	runtime.Gosched()
	w, r := in.writers.Load(), in.readers.Load()
	if w > 1 || w == 1 && r > 0 {
		in.Errorf("%d writers and %d readers at a time", w, r)
	}
	mine.Add(-1)
}

// ask enters, and returns what waits for the lease: nil if there is none.
func (m *member) ask(key string, hows ...how) (wait func() distributed.Lease) {
	ctx, cancel := timely()
	defer cancel()
	l, p, err := m.enter(ctx, key, hows...)
	if err != nil {
		m.Errorf("Enter: %v", err)
	}
	return func() distributed.Lease {
		if p == nil {
			return l
		}
		select {
		case l := <-p.Granted():
			if l == nil {
				m.Errorf("a place was lost")
			}
			return l
		case <-time.After(patience):
			m.Errorf("no lease within %v", patience)
			return nil
		}
	}
}

// wait enters and waits for its lease; nil if it does not get one.
func (m *member) wait(key string, hows ...how) distributed.Lease { return m.ask(key, hows...)() }

// together runs fn for n members at once, each with a random source derived from the seed.
func (e *env) together(n int, fn func(m *member, rnd *rand.Rand)) {
	var all sync.WaitGroup
	source := e.random()
	for range n {
		m, rnd := e.member(), rand.New(rand.NewPCG(source.Uint64(), 0))
		all.Go(func() { fn(m, rnd) })
	}
	all.Wait()
}

func load(e *env) {
	key, in := e.key("k"), &inside{env: e}
	e.together(loadMembers, func(m *member, _ *rand.Rand) {
		for range loadRounds {
			l := m.wait(key)
			if l == nil {
				return
			}
			in.work(distributed.Exclusive, l)
			if err := e.tryRelease(l); err != nil {
				e.Errorf("Release: %v", err)
			}
		}
	})
	e.free(key)
}

// Every member finishes, so neither readers nor writers starve.
func loadMixed(e *env) {
	key, in := e.key("k"), &inside{env: e}
	e.together(loadMembers, func(m *member, rnd *rand.Rand) {
		for range loadRounds {
			mode := distributed.Mode(rnd.IntN(2))
			l := m.wait(key, func(r *distributed.Request) { r.Mode = mode })
			if l == nil {
				return
			}
			in.work(mode, l)
			if err := e.tryRelease(l); err != nil {
				e.Errorf("Release: %v", err)
			}
		}
	})
	e.free(key)
}

func loadPrev(e *env) {
	key, in := e.key("k"), &inside{env: e}
	e.together(loadMembers, func(m *member, _ *rand.Rand) {
		var last distributed.Lease
		for range loadRounds {
			l := m.wait(key, prev(last))
			if l == nil {
				return
			}
			in.work(distributed.Exclusive, l)
			last = l
		}
		if err := e.tryRelease(last); err != nil {
			e.Errorf("Release: %v", err)
		}
	})
	e.free(key)
}

func cancels(e *env) {
	key := e.key("k")
	e.together(loadMembers, func(m *member, rnd *rand.Rand) {
		for range loadRounds {
			mode := distributed.Mode(rnd.IntN(2))
			m.enterAndLeave(key, rnd, func(r *distributed.Request) { r.Mode = mode })
		}
	})
	start := time.Now()
	e.free(key)
	if took, most := time.Since(start), distributed.ClaimWindow(e.ttl)+e.ttl; took > most {
		e.late("what was left behind delayed others by %v; want at most %v", took, most)
	}
}

// enterAndLeave enters with little time, waits a little, and leaves or releases.
func (m *member) enterAndLeave(key string, rnd *rand.Rand, ask how) {
	ctx, cancel := context.WithTimeout(context.Background(), upTo(rnd, 2*time.Millisecond))
	defer cancel()
	l, p, err := m.enter(ctx, key, lasting(m.ttl), ask)
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		m.Errorf("Enter: %v", err)
	}
	late, stop := timely() // leaving needs time of its own
	defer stop()
	if p != nil {
		select {
		case l = <-p.Granted():
		case <-time.After(upTo(rnd, 2*time.Millisecond)):
			err := p.Leave(late)
			for errors.Is(err, distributed.ErrUnavailable) && late.Err() == nil { // a busy machine answers late, and then it goes on
				time.Sleep(10 * time.Millisecond)
				err = p.Leave(late)
			}
			if err != nil {
				m.Errorf("leaving a place: %v", err)
			}
		}
	}
	if l == nil {
		return
	}
	if err := l.Release(late); err != nil && !errors.Is(err, distributed.ErrLeaseLost) { // lost: it was paused for so long
		m.Errorf("releasing a lease: %v", err)
	}
}

func deadContext(e *env) {
	key := e.key("k")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := e.member().enter(ctx, key, lasting(e.ttl)); err == nil {
		e.Errorf("Enter with a dead context gave no error")
	}
	e.free(key)
}
