package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	// workerTTL is short, for a killed holder's lock stays taken for as long.
	workerTTL     = 600 * time.Millisecond
	workerCallers = 6
	peace         = 100 // calls between the faults
)

// task is what a worker is told to do.
type task struct {
	Name, Redis string
	Store       Store
	Seed        uint64
	Accounts    int // keys with data, beside one with permits
}

// worker is a process that adds to numbers in Redis under locks, again and again, until its input ends.
type worker struct {
	task
	journal *Journal
	locker  *wllock.Locker
	data    *redis.Client
	dwells  atomic.Bool   // the next exclusive holder stays between its read and its write
	goOn    chan struct{} // until this says so
}

func (w *worker) run() error {
	backend, err := redislock.Open(w.Redis)
	if err != nil {
		return err
	}
	w.journal, w.goOn = NewJournal(os.Stdout, w.Name), make(chan struct{})
	w.locker, err = wllock.New("bank", w.journal.Places(backend), wllock.WithOwnedBackend(), wllock.WithLeaseTTL(workerTTL))
	if err != nil {
		return err
	}
	opts, err := redis.ParseURL(w.Redis)
	if err != nil {
		return err
	}
	w.data = redis.NewClient(opts)
	ctx, cancel := context.WithCancel(context.Background())
	go w.obey(cancel)
	go w.journal.Watch(ctx)
	var all sync.WaitGroup
	for i := range workerCallers {
		rnd := rand.New(rand.NewPCG(w.Seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				w.call(ctx, rnd, fmt.Sprint(i))
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return w.locker.Close(closing)
}

// obey reads what the process is told.
func (w *worker) obey(end func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "dwell":
			w.dwells.Store(true)
		case "go on":
			w.goOn <- struct{}{}
		}
	}
	end()
	close(w.goOn)
}

// call is one call, for an account as a writer or a reader, or for a permit. Some do not wait for long.
func (w *worker) call(ctx context.Context, rnd *rand.Rand, caller string) {
	r := Request{Caller: caller, Key: fmt.Sprint(rnd.IntN(w.Accounts + 1))}
	var opts []wllock.CallOption
	switch permits := r.Key == fmt.Sprint(w.Accounts); {
	case permits && rnd.IntN(8) > 0:
		r.Permits, opts = 3, append(opts, wllock.Permits(3))
	case !permits && rnd.IntN(4) == 0:
		r.Shared, opts = true, append(opts, wllock.Shared())
	}
	wait := 5 * time.Second
	switch rnd.IntN(8) {
	case 0:
		wait = time.Duration(1 + rnd.Int64N(int64(workerTTL/4)))
	case 1:
		r.NoWait, opts = true, append(opts, wllock.NoWait())
	}
	deadline := time.Now().Add(wait)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r.Deadline = Clock(deadline)
	e, stay := w.journal.Ask(r), time.Duration(rnd.IntN(2_000))*time.Microsecond
	e.Back(w.locker.Do(ctx, "account", r.Key, func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		e.Held(held)
		defer e.Leave(held)
		if r.Permits > 0 {
			time.Sleep(stay)
			return nil
		}
		return w.count(e, r, held, stay)
	}, opts...))
}

// count reads the number of the key, thinks, and writes the next. It is slow to look at its lease.
func (w *worker) count(e Entry, r Request, held *wllock.Held, stay time.Duration) error {
	read, write := readBlind, writeBlind
	if w.Store == Compares && r.exclusive() {
		read, write = readFenced, writeFenced
	}
	key, fence := []string{"data " + r.Key}, fmt.Sprintf("%020d", held.Fence())
	e.Note(Event{What: Read})
	value, err := read.Run(context.Background(), w.data, key, fence).Int64()
	if err != nil {
		return w.refused(e, err)
	}
	e.Note(Event{What: Got, Was: value})
	if r.Shared {
		time.Sleep(stay)
		return nil
	}
	if w.dwells.CompareAndSwap(true, false) {
		e.Held(held)
		<-w.goOn
		e.Held(held) // it was stopped meanwhile
	}
	time.Sleep(stay)
	e.Note(Event{What: Write, Was: value, New: value + 1})
	if err := write.Run(context.Background(), w.data, key, fence, value+1).Err(); err != nil {
		return w.refused(e, err)
	}
	e.Note(Event{What: Wrote})
	return nil
}

func (w *worker) refused(e Entry, err error) error {
	if errors.Is(err, redis.Nil) {
		e.Note(Event{What: Refused})
	}
	return err
}

// What the stores do. Fences have equal lengths, so that they compare as texts. A Lua number is too small for them.
var (
	readFenced = redis.NewScript(`
		if (redis.call('HGET', KEYS[1], 'fence') or '') > ARGV[1] then return nil end
		redis.call('HSET', KEYS[1], 'fence', ARGV[1])
		return redis.call('HGET', KEYS[1], 'value') or 0`)
	writeFenced = redis.NewScript(`
		if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return nil end
		return redis.call('HSET', KEYS[1], 'value', ARGV[2])`)
	readBlind  = redis.NewScript(`return redis.call('HGET', KEYS[1], 'value') or 0`)
	writeBlind = redis.NewScript(`return redis.call('HSET', KEYS[1], 'value', ARGV[2])`)
)

// fleet is workers over one Redis, and what happens to them.
type fleet struct {
	*Run
	t      *testing.T
	task   task
	rnd    *rand.Rand
	lives  int
	procs  []*Process
	mu     sync.Mutex
	wanted func(Event, *Call) bool // guarded by mu: what await waits for
	came   chan Event
}

// heard is called with all that the workers say.
func (f *fleet) heard(_ *Process, e Event, c *Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wanted != nil && c != nil && f.wanted(e, c) {
		f.wanted = nil
		f.came <- e
	}
}

// await calls begin, and waits until a line comes that is wanted.
func (f *fleet) await(what string, begin func(), wanted func(Event, *Call) bool) Event {
	f.t.Helper()
	f.mu.Lock()
	f.wanted = wanted
	f.mu.Unlock()
	begin()
	select {
	case e := <-f.came:
		return e
	case <-time.After(30 * time.Second):
		f.t.Fatalf("waited in vain: %s", what)
		return Event{}
	}
}

func (f *fleet) start(i int) *Process {
	f.t.Helper()
	f.lives++
	f.task.Name, f.task.Seed = fmt.Sprintf("p%d.%d", i, f.lives), f.rnd.Uint64()
	text, err := json.Marshal(f.task)
	require.NoError(f.t, err)
	p, err := f.Start(f.task.Name, workerEnv+"="+string(text), f.heard)
	require.NoError(f.t, err)
	return p
}

// dwell has a process stay between a read and a write, and returns the key.
func (f *fleet) dwell(p *Process) (key string) {
	f.t.Helper()
	f.await("a holder that has read", func() { p.Tell("dwell") }, func(e Event, c *Call) bool {
		is := e.Process == p.Name && e.What == Held && len(c.Accesses) > 0
		if is {
			key = c.Key
		}
		return is
	})
	return key
}

// pause stops a holder between its read and its write, until another process has written.
func (f *fleet) pause(p *Process) {
	f.t.Helper()
	key := f.dwell(p)
	p.Stop(func() {
		since := Now()
		f.await("the write of the next holder", func() {}, func(e Event, c *Call) bool {
			return c.Key == key && e.Process != p.Name && e.What == Wrote && e.At > since
		})
		p.Tell("go on")
	})
}

// replace kills a process, and starts another: where it stays between read and write, or in the middle of anything.
func (f *fleet) replace(i int, dwells bool) {
	f.t.Helper()
	if dwells {
		f.dwell(f.procs[i])
	}
	f.procs[i].Kill()
	require.NoError(f.t, f.procs[i].End())
	f.procs[i] = f.start(i)
}

// fly has a fleet run, and disturbs it.
func fly(t *testing.T, w task, processes, rounds int) *Run {
	run, err := NewRun(t.ArtifactDir())
	require.NoError(t, err)
	w.Redis = "redis://" + redistest.Start(t).Addr
	f := &fleet{Run: run, t: t, task: w, rnd: testseed.Rand(t), came: make(chan Event, 1)}
	t.Cleanup(func() {
		for _, p := range f.procs {
			p.Kill()
			_ = p.End()
		}
		require.NoError(t, run.End())
	})
	for i := range processes {
		f.procs = append(f.procs, f.start(i))
	}
	for range rounds {
		f.pause(f.procs[f.rnd.IntN(processes)])
		f.replace(f.rnd.IntN(processes), f.rnd.IntN(2) == 0)
		f.replace(f.rnd.IntN(processes), true)
		left := 0
		f.await("calls in peace", func() {}, func(e Event, _ *Call) bool {
			if e.What == Leave {
				left++
			}
			return left == peace
		})
	}
	for _, p := range f.procs {
		require.NoError(t, p.End())
	}
	f.procs = nil
	return run
}

// TestLockAndFence: with a store that compares fences the data is linearizable, though holders are paused beyond their leases, and killed. With one that
// compares none it is not. The lock keeps its own rules in both. All that is done to a process waits for what it says, and no time is bounded by
// less than the longest wait. So the test is short, though it kills.
func TestLockAndFence(t *testing.T) { lockAndFence(t, 4, 4, 2, 10*time.Second) }

func TestLockAndFenceForLong(t *testing.T) {
	testscope.Long(t, "kills and stops processes for a minute")
	lockAndFence(t, 6, testscope.Scale(30, 200), 16, time.Second)
}

func lockAndFence(t *testing.T, processes, rounds, accounts int, late time.Duration) {
	for name, store := range map[string]Store{"a store that compares fences": Compares, "a store that compares none": Blind} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := fly(t, task{Store: store, Accounts: accounts}, processes, rounds)
			require.NoError(t, run.Enough(Need{Entries: peace * rounds, Contended: 2 * rounds, Hits: []string{Kill, Stop}}))
			accesses := 0
			for _, c := range run.Calls {
				accesses += len(c.Accesses)
			}
			start := time.Now()
			found := run.Check(Rules{Store: store, Late: late})
			t.Logf("%d calls, %d accesses, %d faults, checked in %v", len(run.Calls), accesses, len(run.Faults), time.Since(start).Round(time.Millisecond))
			require.NoError(t, run.DrawAll(found))
			for i, v := range found {
				t.Logf("%d.svg: %v", i, v)
			}
			if store == Compares {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found, "a holder was paused beyond its lease, and no update was lost")
			for _, v := range found {
				require.Equal(t, "linearizable", v.Rule)
			}
		})
	}
}
