package redislock

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// TestScriptsHoldInAnyOrder runs random sequences of scripts on real servers and holds each reply, message and key to what a
// model of the clients knows. The servers' clocks are set by the test, so a sequence is the same each time it is run: a failure
// is cut down to the steps it needs and printed.
func TestScriptsHoldInAnyOrder(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	total := testscope.Scale[uint64](3_000, 1_000_000)
	f := &scriptFuzz{seed: testseed.Seed(t), total: total, atOnce: 4096, change: unchanged, counts: make(map[string]int)}
	f.run(t, runtime.GOMAXPROCS(0)+1) // one server is busy while another's replies are read
	f.report(t)
}

const (
	// tick is by how much the clock goes on after as many rounds as ticking: these are at the same microsecond.
	tick, ticking = 10 * time.Millisecond, 4
	// maxWait is how many rounds a sequence may wait: 3.5 s, longer than a lease of the two shorter TTLs.
	maxWait = 1400
)

// simEpoch is when a server's clock begins.
var simEpoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func unchanged(_, text string) string { return text }

// scriptFuzz runs sequences until one fails.
type scriptFuzz struct {
	seed, total uint64
	atOnce      uint64                         // under way on a server: with many, pipelines are long
	change      func(name, text string) string // of a script

	next, scripts atomic.Uint64
	failed        atomic.Bool

	mu      sync.Mutex
	counts  map[string]int // guarded by mu; of sequences, each kind of reply, and what was tolerated
	failure *failedPlan    // guarded by mu; the first
}

// failedPlan is the plan of a sequence that has failed.
type failedPlan struct {
	plan
	index uint64
	what  string
}

func (f *scriptFuzz) run(t *testing.T, servers int) {
	t.Helper()
	var group sync.WaitGroup
	for range servers {
		track := f.track(t)
		group.Go(func() { track.run(t) })
	}
	group.Wait()
}

func (f *scriptFuzz) fail(index uint64, s *sequence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		f.failure = &failedPlan{s.plan, index, s.failure}
	}
	f.failed.Store(true)
}

// report fails the test with the shortest form of the failure.
func (f *scriptFuzz) report(t *testing.T) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(f.counts)) {
		t.Logf("%9d %s", f.counts[k], k)
	}
	t.Logf("%d scripts", f.scripts.Load())
	for _, x := range tolerations {
		bound := f.counts["sequence"]*x.perMille/1000 + 10
		require.LessOrEqual(t, f.counts[x.what], bound, "%s: tolerated so often, since %s", x.what, x.why)
	}
	if f.failure != nil {
		f.explain(t, f.track(t))
	}
}

// explain fails the test with what is left of the failed sequence when all is left out that it does not need.
func (f *scriptFuzz) explain(t *testing.T, k *track) {
	t.Helper()
	least := k.shrink(t, f.failure.plan)
	var lines []string
	k.alone(t, least, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	t.Fatalf("sequence %d of seed %d: %s\nwith %d of its %d steps (gap %v, PUBLISH counts %v, few at once %v, TTLs %v):\n%s", f.failure.index, f.seed,
		f.failure.what, len(least.steps), len(f.failure.steps), least.gap, least.single, least.few, least.ttls, strings.Join(lines, "\n"))
}

// track is a server with a clock, and the sequences that run on it in turn.
type track struct {
	f     *scriptFuzz
	clock *redistest.Clock
	link  *scriptLink
	round int
	keys  int // so far
	due   [maxWait + 1][]*entrant
	count map[string]int
}

// entrant is a sequence on a track.
type entrant struct {
	*sequence
	index uint64
	todo  []execution
	wait  int
}

func (f *scriptFuzz) track(t *testing.T) *track {
	t.Helper()
	server, clock := redistest.StartWithClock(t, simEpoch)
	return f.trackOn(t, server, clock)
}

func (f *scriptFuzz) trackOn(t *testing.T, server *redistest.Server, clock *redistest.Clock) *track {
	t.Helper()
	return &track{f: f, clock: clock, link: newScriptLink(t, server, f.change), count: make(map[string]int)}
}

func (k *track) now() time.Time { return simEpoch.Add(time.Duration(k.round/ticking) * tick) }

func (k *track) enter(p plan, index uint64, trace func(string, ...any)) *entrant {
	k.keys++
	return &entrant{sequence: newSequence(p, fmt.Sprintf("k%d", k.keys), trace), index: index}
}

// run takes sequences until there are no more.
func (k *track) run(t *testing.T) {
	running := 0
	for range min(k.f.atOnce, k.f.total/2) {
		if e := k.draw(); e != nil {
			k.plan(e, 0)
			running++
		}
	}
	for ; running > 0; k.round++ {
		batch := k.due[k.round%len(k.due)]
		k.due[k.round%len(k.due)] = nil
		for _, e := range k.play(t, batch) {
			k.count["sequence"]++
			for what := range e.tolerated {
				k.count[what.what]++
			}
			if e.failure != "" {
				k.f.fail(e.index, e.sequence)
			}
			running--
			if next := k.draw(); next != nil {
				k.plan(next, ticking-k.round%ticking) // with the clock, as it does when it is run again
				running++
			}
		}
		if k.f.failed.Load() {
			break
		}
	}
	k.f.mu.Lock()
	defer k.f.mu.Unlock()
	for what, n := range k.count {
		k.f.counts[what] += n
	}
}

func (k *track) draw() *entrant {
	index := k.f.next.Add(1) - 1
	if index >= k.f.total {
		return nil
	}
	return k.enter(draw(k.f.seed, index), index, nil)
}

func (k *track) plan(e *entrant, wait int) {
	i := (k.round + wait) % len(k.due)
	k.due[i] = append(k.due[i], e)
}

// play runs one round of these sequences in one pipeline, and returns those that have ended.
func (k *track) play(t *testing.T, batch []*entrant) (finished []*entrant) {
	if len(batch) == 0 {
		return nil
	}
	now := k.now()
	k.clock.Set(now)
	for _, e := range batch {
		e.goTo(now)
		e.todo, e.wait = e.next()
		for _, x := range e.todo {
			k.send(e.sequence, x)
		}
	}
	k.link.flush(t)
	for _, e := range batch {
		for _, x := range e.todo {
			k.receive(t, e.sequence, x)
		}
		if e.done() {
			keys := keysOf(e.key, "")
			k.link.send("UNLINK", &keys[0], &keys[1], &keys[2], &keys[3], &keys[4])
			finished = append(finished, e)
		} else {
			k.plan(e, max(1, e.wait))
		}
	}
	k.link.flush(t)
	for range finished {
		_, err := k.link.receive()
		require.NoError(t, err)
	}
	return finished
}

func (k *track) send(s *sequence, x execution) {
	for _, c := range x.commands {
		k.link.send(c...)
	}
	if x.request != nil {
		k.link.call(x.request.call, s.few)
	}
	keys := keysOf(s.key, "")
	k.link.send("EVALSHA", k.link.shas[viewScript.Name], 5, &keys[0], &keys[1], &keys[2], &keys[3], &keys[4])
}

// receive hands to the sequence what the server has answered.
func (k *track) receive(t *testing.T, s *sequence, x execution) {
	k.link.pushed = nil
	for range x.commands {
		_, _ = k.link.receive() // a foreigner's error is his own
	}
	reply := ""
	if x.request != nil {
		var err error
		reply, err = k.link.receive()
		require.NoError(t, err, "%v", x.request)
		k.f.scripts.Add(1)
		k.count["  "+x.request.kind()+" "+replyKind(reply)]++
	}
	view, err := k.link.receive()
	require.NoError(t, err)
	s.ran(x, reply, view, k.link.pushed)
}

// alone runs one sequence and returns what is wrong with it.
func (k *track) alone(t *testing.T, p plan, trace func(string, ...any)) string {
	k.round += ticking - k.round%ticking
	e := k.enter(p, 0, trace)
	for {
		if finished := k.play(t, []*entrant{e}); len(finished) > 0 {
			return e.failure
		}
		k.due = [maxWait + 1][]*entrant{}
		k.round += max(1, e.wait)
	}
}

// shrink leaves out steps as long as what is left fails in any way.
func (k *track) shrink(t *testing.T, p plan) plan {
	for size := len(p.steps) / 2; size > 0; {
		less := false
		for i := 0; i+size <= len(p.steps); i++ {
			q := p
			q.steps = slices.Delete(slices.Clone(p.steps), i, i+size)
			if k.alone(t, q, nil) != "" {
				p, less = q, true
				break
			}
			if i+size < len(p.steps) { // the time it took may matter
				q.steps[i].wait = min(maxWait, q.steps[i].wait+p.steps[i].wait)
				if k.alone(t, q, nil) != "" {
					p, less = q, true
					break
				}
			}
		}
		if !less {
			size /= 2
		}
	}
	return p
}

// replyKind is what is counted of a reply.
func replyKind(reply string) string {
	reply, lost := strings.CutPrefix(reply, "lost ")
	kind := strings.TrimRight(words(reply).first(), "0123456789")
	if lost {
		kind += ", prev lost"
	}
	return kind
}
