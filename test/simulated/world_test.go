package simulated

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/test/history"
)

const (
	leaseTTL   = time.Second
	processes  = 3
	calls      = 40
	lasting    = 4 * leaseTTL // in which all calls come
	permitsKey = "p"
	// recovery is how long it may take until a process knows that the service is back: rule O2.
	recovery = 2 * time.Second
	// served is how long each process may need, after the faults, until it serves a key: what dead holders have must expire.
	served = 10 * leaseTTL
)

// world is one schedule.
type world struct {
	seed      uint64
	rnd       *rand.Rand // of the schedule. Processes and calls have their own
	calm      bool       // nothing goes wrong
	local     bool       // the policy is LocalOnly
	flaw      string     // of the service; "": none
	memory    *memlock.Backend
	documents *documents // if there is no memory
	procs     []*process
	data      data
	seen      *seen
	callers   sync.WaitGroup

	mu      sync.Mutex // guards all below
	history history.History
	wrong   []string
}

// newWorld draws what kind of schedule a seed is. service is "memlock", "register", or "": one of them.
func newWorld(seed uint64, s *seen, service, flaw string) *world {
	w := &world{seed: seed, rnd: testseed.Shared(seed, 1<<32), seen: s, flaw: flaw, data: data{of: map[string]datum{}}}
	w.history.Ends = map[string]int64{}
	kind := w.rnd.IntN(6)
	w.calm, w.local = kind < 2, w.rnd.IntN(3) == 0
	if service == "register" || service == "" && kind%2 == 0 {
		w.documents = &documents{all: map[string]document{}, flaw: flaw}
	} else {
		w.memory = memlock.New()
	}
	for i := range processes {
		w.procs = append(w.procs, w.newProcess(i))
	}
	return w
}

// kind names what was drawn, for failures.
func (w *world) kind() string {
	return fmt.Sprintf("calm %t, LocalOnly %t, memlock %t, flaw %q", w.calm, w.local, w.memory != nil, w.flaw)
}

func (w *world) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// fail notes a violation.
func (w *world) fail(format string, args ...any) { w.with(func() { w.fails(format, args...) }) }

// fails is fail for one that holds mu.
func (w *world) fails(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf("%v: ", time.Since(bubbleBegins))+fmt.Sprintf(format, args...))
}

// bubbleBegins is the time at which each bubble begins.
var bubbleBegins = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// fault notes what has happened to a process.
func (w *world) fault(f history.Fault, until time.Time) {
	w.with(func() { w.history.Faults = append(w.history.Faults, history.Event{Fault: f, At: until.UnixNano()}) })
}

// play plays the schedule, in a bubble.
func (w *world) play() {
	for i := range calls {
		rnd := rand.New(rand.NewPCG(w.seed, 1000+uint64(i)))
		at := time.Duration(rnd.Int64N(int64(lasting)))
		if rnd.IntN(3) > 0 { // most come in crowds
			at = at.Truncate(leaseTTL)
		}
		c := &call{process: w.procs[rnd.IntN(processes)], n: i, rnd: rnd}
		w.callers.Go(func() {
			time.Sleep(at)
			c.run()
		})
	}
	if !w.calm {
		w.callers.Go(w.disturb)
	}
	w.callers.Go(w.look)
	w.callers.Wait()
	for _, p := range w.procs {
		p.wake()
		p.with(func() { p.bad, p.cut = false, time.Time{} })
	}
	time.Sleep(recovery)
	w.close()
}

// disturb lets processes stand still, cuts them off, has one die, and the service go away.
func (w *world) disturb() {
	long := func() time.Duration { return 1 + time.Duration(w.rnd.Int64N(int64(2*leaseTTL))) }
	for range 1 + w.rnd.IntN(4) {
		time.Sleep(long())
		p := w.procs[w.rnd.IntN(processes)]
		switch w.rnd.IntN(6) {
		case 0, 1:
			p.standStill(long())
		case 2, 3:
			p.cutOff(long())
		case 4:
			if p != w.procs[0] && !p.isDead() {
				p.die()
			}
		default:
			w.away(true)
			time.Sleep(2 * long())
			w.away(false)
		}
	}
}

// look looks at the locks of a process now and then.
func (w *world) look() {
	rnd := rand.New(rand.NewPCG(w.seed, 999))
	for range 20 {
		time.Sleep(time.Duration(rnd.Int64N(int64(lasting / 8))))
		w.procs[rnd.IntN(processes)].look()
	}
}

// away has the service go away, or come back.
func (w *world) away(is bool) {
	w.seen.note("fault: the service is away")
	for _, p := range w.procs {
		p.with(func() {
			p.away = is
			p.trouble = time.Now()
		})
	}
	if w.memory != nil {
		w.memory.Partition(is)
	}
}

// close has each process that lives serve each key once more, closes all, and looks for what is left.
func (w *world) close() {
	var all sync.WaitGroup
	for _, p := range w.procs {
		p.late.Wait()
		for _, key := range []string{"a", "b", permitsKey} {
			all.Go(func() { p.serves(key) })
		}
	}
	all.Wait()
	for _, p := range w.procs {
		all.Go(p.close)
	}
	all.Wait()
	if w.calm { // all releases were answered, and what stays taken, or is detached, has ended in the time of recovery
		time.Sleep(2 * longestTrip)
	} else {
		time.Sleep(served)
	}
	if key := w.left(); key != "" {
		w.fail("the service has still %q", key)
	}
	if w.memory != nil {
		_ = w.memory.Close()
	}
}

// left returns a key that is in use at the service.
func (w *world) left() string {
	if w.memory == nil {
		return w.documents.left()
	}
	page, _, err := w.memory.List(context.Background(), "sim:", "", 1)
	if err != nil || len(page) > 0 {
		return fmt.Sprint(page, err)
	}
	return ""
}

// serves checks that a process which lives gets a lock when nothing is wrong any more.
func (p *process) serves(key string) {
	if p.isDead() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), served)
	defer cancel()
	if err := p.locker.Do(ctx, "n", key, func(context.Context) error { return nil }); err != nil {
		p.w.fail("after the faults %s does not serve %s: %v", p.name, key, err)
	}
}

// close closes the process, and checks that no caller of its is left. One that has died finds no service.
func (p *process) close() {
	p.counted()
	dead := p.isDead()
	p.with(func() { p.ended = dead })
	ctx, cancel := context.WithTimeout(context.Background(), served)
	defer cancel()
	err := p.locker.Close(ctx)
	p.late.Wait()
	if dead {
		return
	}
	if err != nil {
		p.w.fail("Close of %s: %v", p.name, err)
	}
	if s := p.locker.Stats().Total; s.Held != 0 || s.Waiting != 0 || len(p.locker.Locks(10)) > 0 {
		p.w.fail("after Close %s has %d holders, %d waiters, %v", p.name, s.Held, s.Waiting, p.locker.Locks(10))
	}
}

// judge returns what is wrong, when the bubble has ended.
func (w *world) judge() []string {
	store := history.NoData
	if w.memory != nil {
		store = history.Compares
	}
	for _, v := range w.history.Check(history.Rules{Store: store}) {
		var text strings.Builder
		text.WriteString(v.String())
		for _, c := range v.Calls {
			text.WriteString("\n\t" + described(c))
		}
		w.wrong = append(w.wrong, text.String())
	}
	if len(w.wrong) > 0 {
		for _, f := range w.history.Faults {
			w.wrong = append(w.wrong, fmt.Sprintf("%s of %s from %v to %v", f.Name, f.On, time.Unix(0, f.Since).Sub(bubbleBegins), time.Unix(0, f.At).Sub(bubbleBegins)))
		}
	}
	return w.wrong
}

// described is a call with its times since the bubble's beginning.
func described(c *history.Call) string {
	at := func(t int64) time.Duration {
		if t == 0 {
			return 0
		}
		return time.Unix(0, t).Sub(bubbleBegins)
	}
	return fmt.Sprintf("%v of %q: asked %v, queued %v, deadline %v, held %v, certain until %v, left %v, back %v %s", c, c.Key, at(c.Asked),
		at(c.Queued), at(c.Deadline), at(c.Held), at(c.Certain), at(c.Left), at(c.Back), c.Error)
}

// data is numbers behind a store that compares fences.
type data struct {
	mu sync.Mutex
	of map[string]datum // guarded by mu
}

type datum struct {
	fence uint64
	value int64
}

// read returns the number, and notes the fence. 0: of a reader.
func (d *data) read(key string, fence uint64) (value int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.of[key]
	if fence > 0 && fence < was.fence {
		return 0, false
	}
	d.of[key] = datum{max(fence, was.fence), was.value}
	return was.value, true
}

// write changes the number, unless a later fence is known.
func (d *data) write(key string, fence uint64, value int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fence < d.of[key].fence {
		return false
	}
	d.of[key] = datum{fence, value}
	return true
}

// seen counts what all schedules of a test have come by.
type seen struct {
	mu sync.Mutex
	of map[string]int // guarded by mu
}

func newSeen() *seen { return &seen{of: map[string]int{}} }

func (s *seen) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[what]++
}

// lines are what was seen, in order.
func (s *seen) lines() (all []string) {
	for _, what := range slices.Sorted(maps.Keys(s.of)) {
		all = append(all, fmt.Sprintf("%7d %s", s.of[what], what))
	}
	return all
}

var _ distributed.Backend = documentsView{}
