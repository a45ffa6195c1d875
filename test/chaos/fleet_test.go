package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/test/history"
)

// fleet is processes over one lock service, and what happens to them.
type fleet struct {
	*history.Run
	*service
	t      *testing.T
	task   task
	rnd    *rand.Rand
	lives  int
	procs  []*process
	done   map[string]int // faults, by their names
	waits  []wait
	mu     sync.Mutex
	places map[*history.Call]history.Event         // guarded by mu: of those that wait in the backend's queue, when they came
	wanted func(history.Event, *history.Call) bool // guarded by mu: what await waits for
	came   chan history.Event
	said   string // guarded by mu: the last error of a call
}

// process is one that counts. Its successors have its links.
type process struct {
	*history.Process
	links []*testproc.Proxy // to all servers
}

// newFleet starts so many processes.
func newFleet(t *testing.T, rnd *rand.Rand, s *service, w task, processes int) *fleet {
	run, err := history.NewRun(t.ArtifactDir())
	require.NoError(t, err)
	w.Data = redistest.Start(t).Addr
	f := &fleet{Run: run, service: s, t: t, task: w, rnd: rnd, done: map[string]int{}, places: map[*history.Call]history.Event{}, came: make(chan history.Event, 1)}
	t.Cleanup(func() {
		for _, p := range f.procs {
			p.Kill()
			_ = p.End()
		}
		require.NoError(t, run.End())
	})
	for i := range processes {
		p := &process{}
		for _, one := range s.servers {
			p.links = append(p.links, testproc.NewProxy(t, one.Addr))
		}
		f.procs = append(f.procs, p)
		f.begin(i)
	}
	return f
}

// begin starts a process.
func (f *fleet) begin(i int) {
	f.t.Helper()
	f.lives++
	w, ways := f.task, map[string]string{}
	for j, link := range f.procs[i].links {
		ways[f.servers[j].Addr] = link.Addr
	}
	w.Name, w.Seed, w.URL, w.Ways = fmt.Sprintf("p%d.%d", i, f.lives), f.rnd.Uint64(), f.url(i, ways), ways
	text, err := json.Marshal(w)
	require.NoError(f.t, err)
	f.procs[i].Process, err = f.Start(w.Name, workerEnv+"="+string(text), f.heard)
	require.NoError(f.t, err)
}

// end ends all processes.
func (f *fleet) end() {
	for _, p := range f.procs {
		require.NoError(f.t, p.End())
	}
	f.procs = nil
}

// heard is called with all that the processes say.
func (f *fleet) heard(_ *history.Process, e history.Event, c *history.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.What {
	case history.Queued:
		f.places[c] = e
	case history.Held, history.Back:
		delete(f.places, c)
		f.said = cmp.Or(e.Error, f.said)
	}
	if f.wanted != nil && c != nil && f.wanted(e, c) {
		f.wanted = nil
		f.came <- e
	}
}

// forget has a process that has ended wait for nothing.
func (f *fleet) forget(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.places, func(c *history.Call, _ history.Event) bool { return c.Process == p.Name })
}

// Patience is counted in ticks, for a machine that stands still takes one.
const tick, patience = 50 * time.Millisecond, 1200

// await calls begin, and waits until a line comes that is wanted.
func (f *fleet) await(what string, begin func(), wanted func(history.Event, *history.Call) bool) history.Event {
	f.t.Helper()
	f.mu.Lock()
	f.wanted = wanted
	f.mu.Unlock()
	begin()
	for range patience {
		select {
		case e := <-f.came:
			return e
		case <-time.After(tick):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.t.Fatalf("waited in vain: %s. The last error of a call: %s", what, f.said)
	return history.Event{}
}

// dwell has a process stay between a read and a write, and returns the key.
func (f *fleet) dwell(p *process) (key string) {
	f.t.Helper()
	f.await("a holder that has read", func() { p.Tell("dwell") }, func(e history.Event, c *history.Call) bool {
		is := e.Process == p.Name && e.What == history.Held && len(c.Accesses) > 0
		if is {
			key = c.Key
		}
		return is
	})
	return key
}

// settle waits until each account has been written anew.
func (f *fleet) settle() {
	f.t.Helper()
	since, left := history.Now(), map[string]bool{}
	f.await("a write of each account", func() {}, func(e history.Event, c *history.Call) bool {
		if e.What == history.Wrote && c.Held > since {
			left[c.Key] = true
		}
		return len(left) == f.task.Accounts
	})
}

// upTo is a random time.
func (f *fleet) upTo(d time.Duration) time.Duration { return time.Duration(f.rnd.Int64N(int64(d))) }
