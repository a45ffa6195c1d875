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
	{"exclusion under load", func(e *env, key string) { e.takeTurns(key, 1, false, always(exclusive)) }},
	{"exclusion under load of readers and writers", func(e *env, key string) { e.takeTurns(key, loadMembers, false, anyMode) }},
	{"exclusion under load with prev", func(e *env, key string) { e.takeTurns(key, 1, true, always(exclusive)) }},
	{"canceling and leaving at any time leaves nothing", func(e *env, key string) { e.enterAndLeave(key, anyMode) }},
	{"an enter with a dead context leaves nothing", func(e *env, key string) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := e.member().enter(ctx, key, lasting(e.ttl)); err == nil {
			e.Errorf("Enter with a dead context gave no error")
		}
	}},
}

const (
	loadMembers = 8
	loadRounds  = 40
)

// inside counts the holders of a lock, to check exclusion.
type inside struct {
	*env
	most             int32 // readers, or permits that are held
	writers, readers atomic.Int32
	fence            atomic.Uint64 // of the last writer
}

// work is what a holder does: it checks exclusion, and pauses so that others try to get in.
func (in *inside) work(mode distributed.Mode, l distributed.Lease) {
	mine := &in.readers
	if mode == distributed.Exclusive {
		mine = &in.writers
	}
	if now := mine.Add(1); now > in.most {
		in.Errorf("%d of at most %d are inside", now, in.most)
	}
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
	l, p, err := m.try(key, hows...)
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

// takeTurns has all members take the lock again and again, for what each asks. With prev a lease is released by the next request. Every
// member finishes, so nobody starves.
func (e *env) takeTurns(key string, most int32, withPrev bool, ask func(*rand.Rand) how) {
	in := &inside{env: e, most: most}
	e.together(loadMembers, func(m *member, rnd *rand.Rand) {
		var last distributed.Lease
		release := func() {
			if err := try(last.Release); err != nil {
				e.Errorf("Release: %v", err)
			}
			last = nil
		}
		for range loadRounds {
			var mode distributed.Mode
			last = m.wait(key, prev(last), ask(rnd), func(r *distributed.Request) { mode = r.Mode })
			if last == nil {
				return
			}
			in.work(mode, last)
			if !withPrev {
				release()
			}
		}
		if withPrev {
			release()
		}
	})
}

func always(h how) func(*rand.Rand) how { return func(*rand.Rand) how { return h } }

// anyMode asks for the lock as a writer or as a reader.
func anyMode(rnd *rand.Rand) how {
	mode := distributed.Mode(rnd.IntN(2))
	return func(r *distributed.Request) { r.Mode = mode }
}

// enterAndLeave has all members ask, and give up at any time.
func (e *env) enterAndLeave(key string, ask func(*rand.Rand) how) {
	e.together(loadMembers, func(m *member, rnd *rand.Rand) {
		for range loadRounds {
			m.enterAndLeave(key, rnd, ask(rnd))
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
