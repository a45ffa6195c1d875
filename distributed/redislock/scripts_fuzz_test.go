package redislock

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// TestScriptsHoldInAnyOrder runs random sequences of scripts on real servers and holds each reply, message and key to what a
// model of the clients knows. The servers' clocks are set by the test, so a sequence is the same each time it is run: a failure
// is cut down to the steps it needs and printed.
func TestScriptsHoldInAnyOrder(t *testing.T) { holdInAnyOrder(t, 400) }

func TestScriptsHoldForLong(t *testing.T) {
	testscope.Long(t, "thousands of sequences")
	holdInAnyOrder(t, testscope.Scale[uint64](3_000, 1_000_000))
}

// TestTheCrowdIsServedAsByTheGeneralPart has the same done without the crowd's way: each reply, message and key has to be the same.
func TestTheCrowdIsServedAsByTheGeneralPart(t *testing.T) { serveAsInGeneral(t, 400) }

func TestTheCrowdIsServedAsByTheGeneralPartForLong(t *testing.T) {
	testscope.Long(t, "thousands of sequences on two servers")
	serveAsInGeneral(t, testscope.Scale[uint64](3_000, 1_000_000))
}

func serveAsInGeneral(t *testing.T, sequences uint64) {
	t.Helper()
	f := newScriptFuzz(testseed.Seed(t), sequences)
	one, clock := redistest.StartWithClock(t, simEpoch)
	k := newScriptServer(t, one, clock, mutant{})
	k.together = true
	two, clock := redistest.StartWithClock(t, simEpoch)
	k.twin = newScriptServer(t, two, clock, mutant{}, general)
	f.run(k)
	if f.failed != nil {
		k.explain(t, f.failed)
	}
}

func holdInAnyOrder(t *testing.T, sequences uint64) {
	t.Helper()
	f := newScriptFuzz(testseed.Seed(t), sequences)
	var servers []*scriptServer
	for range runtime.GOMAXPROCS(0) + 1 { // one is busy while another's replies are read
		server, clock := redistest.StartWithClock(t, simEpoch)
		servers = append(servers, newScriptServer(t, server, clock, mutant{}))
	}
	f.run(servers...)
	for what, n := range f.tolerated {
		require.LessOrEqual(t, n, int(f.total)*what.perMille/1000+10, "%s: tolerated so often, since %s", what.what, what.why)
	}
	if f.failed != nil {
		servers[0].explain(t, f.failed)
	}
}

const (
	// tick is by how much the clock goes on after as many rounds as ticking: these are at the same microsecond.
	tick, ticking = 10 * time.Millisecond, 4
	// maxWait is how many rounds a sequence may wait: 3.5 s, longer than a lease of the two shorter TTLs.
	maxWait = 1400
)

// simEpoch is when a server's clock begins.
var simEpoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// scriptFuzz runs sequences until one fails.
type scriptFuzz struct {
	seed, total uint64

	mu        sync.Mutex
	next      uint64              // guarded by mu, as all below
	failed    *sequence           // the first
	tolerated map[*toleration]int // by how many
}

func newScriptFuzz(seed, total uint64) *scriptFuzz {
	return &scriptFuzz{seed: seed, total: total, tolerated: make(map[*toleration]int)}
}

func (f *scriptFuzz) run(servers ...*scriptServer) {
	var group sync.WaitGroup
	for _, one := range servers {
		group.Go(func() {
			for s := f.draw(); s != nil; s = f.draw() {
				one.play(s)
				f.note(s)
			}
		})
	}
	group.Wait()
}

func (f *scriptFuzz) draw() *sequence {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil || f.next == f.total {
		return nil
	}
	f.next++
	return newSequence(draw(f.seed, f.next), nil)
}

func (f *scriptFuzz) note(s *sequence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for what := range s.tolerated {
		f.tolerated[what]++
	}
	if s.failure != "" && f.failed == nil {
		f.failed = s
	}
}

// liveProcess begins the names of processes that hear messages.
const liveProcess = "live"

// overheard takes the place of PUBLISH: the view shows what was published, and only live processes hear.
const overheard = `
local function overheard(channel, text)
  if not string.find(channel, ':` + liveProcess + `', 1, true) then return 0 end
  redis.call('RPUSH', 'pushed', channel .. ' ' .. text)
  return 1
end
`

// general has a script do without the crowd's way.
func general(text string) string {
	const pass = "\nlocal function handOver(raw, time, ended, T, past, member, entry)\n"
	text = strings.Replace(text, pass, pass+"do return nil end\n", 1)
	const beat = "\nlocal function beat(i, value, state, token, attempt, T, keep, now, ms)\n"
	return strings.Replace(text, beat, beat+"do return nil end\n", 1)
}

// A script that is named with fewOnly does for fewMost waiters or readers what the others do for 64: more than a sequence has.
const (
	fewOnly = " few"
	fewMost = 2
)

// scriptServer is a server whose clock is set, and the scripts that it has.
type scriptServer struct {
	client   *redis.Client
	clock    *redistest.Clock
	now      time.Time
	shas     map[string]string // by the script's name
	twin     *scriptServer     // has to answer and keep the same; nil: none
	together bool              // see beatTogether
}

// newScriptServer loads the scripts, with the mutant.
func newScriptServer(t *testing.T, server *redistest.Server, clock *redistest.Clock, m mutant, edit ...func(text string) string) *scriptServer {
	t.Helper()
	k := &scriptServer{client: server.Client(), clock: clock, now: simEpoch, shas: make(map[string]string)}
	load := func(name, text string) {
		sha, err := k.client.ScriptLoad(t.Context(), text).Result()
		require.NoError(t, err, "%s, %s", name, m.what)
		k.shas[name] = sha
	}
	places, edited := 0, 0
	for _, one := range allScripts {
		text := one.Text
		for _, f := range edit {
			text = f(text)
			edited += min(1, len(text)-len(one.Text))
		}
		if m.what != "" {
			places += strings.Count(text, m.old)
			text = strings.ReplaceAll(text, m.old, m.broken)
		}
		if published := strings.ReplaceAll(text, "redis.pcall('PUBLISH', ", "overheard("); published != text {
			text = strings.Replace(published, "\n", overheard, 1) // behind the line that says it is Lua
		}
		require.NotContains(t, text, "call('PUBLISH'")
		load(one.Name, text)
		few := strings.Replace(text, "local MOST = 64", "local MOST = "+strconv.Itoa(fewMost), 1)
		require.Equal(t, strings.Contains(text, "MOST"), few != text, one.Name)
		load(one.Name+fewOnly, few)
	}
	require.True(t, m.what == "" || places > 0, "no script has %q any more: break its new form", m.old)
	require.Equal(t, 4*len(edit), edited, "enter, leave and the two heartbeats have the crowd's way")
	load(viewScript.Name, viewScript.Text)
	return k
}

// play runs a sequence to its end. Its time is the server's, which goes on from sequence to sequence.
func (k *scriptServer) play(s *sequence) {
	if k.twin != nil {
		defer func() { k.twin.clear(s) }()
	}
	defer k.clear(s)
	s.start = k.now
	for round := 0; !s.done(); {
		s.now = s.start.Add(time.Duration(round/ticking) * tick)
		k.clock.Set(s.now)
		if k.twin != nil {
			k.twin.clock.Set(s.now)
		}
		todo, wait := s.next()
		for _, x := range todo {
			k.execute(s, x)
		}
		round += max(1, wait)
	}
	k.now = s.now.Add(tick)
}

// clear removes what a sequence has left.
func (k *scriptServer) clear(s *sequence) {
	keys := keysOf(s.key, "")
	k.client.Unlink(context.Background(), keys[:]...)
}

// execute has the server do something, and hands to the sequence what it has answered.
func (k *scriptServer) execute(s *sequence, x execution) {
	text, shown, err := k.ask(s, x)
	if err == nil && k.twin != nil {
		if same, kept, err := k.twin.ask(s, x); err != nil || same != text || kept != shown {
			s.fail("%v: %q, and\n%s\nbut the general part: %q, %v, and\n%s", x.request, text, shown, same, err, kept)
			return
		}
	}
	if err != nil {
		s.fail("%v: %v", x.request, err)
		return
	}
	s.ran(x, text, shown)
}

func (k *scriptServer) ask(s *sequence, x execution) (answer, shown string, err error) {
	ctx, pipe := context.Background(), k.client.Pipeline()
	for _, c := range x.commands {
		pipe.Do(ctx, c...) // a foreigner's error is his own
	}
	reply := &redis.Cmd{}
	if x.request != nil {
		name := x.request.kind()
		if s.few {
			name += fewOnly
		}
		args := slices.Clone(x.request.call.Args)
		if answer = k.beatTogether(x); answer == "" {
			args[1] = k.shas[name]
			reply = pipe.Do(ctx, args...)
		}
	}
	keys := keysOf(s.key, "")
	view := pipe.EvalSha(ctx, k.shas[viewScript.Name], keys[:])
	_, _ = pipe.Exec(ctx)
	if answer == "" {
		answer, _ = reply.Val().(string)
	}
	shown, err = view.Text()
	return answer, shown, cmp.Or(reply.Err(), err)
}

// beatTogether sends every other heartbeat as one call for two places, which are the same, if that can be, as Backends do. "": it was not, or is to be
// sent by itself.
func (k *scriptServer) beatTogether(x execution) (answer string) {
	a := x.request.a
	if !k.together || x.luck%2 == 0 || x.request.kind() != heartbeatScript.Name || a.mode != distributed.Exclusive || a.c.process.gap > 0 || !a.c.process.single.Load() {
		return ""
	}
	c := heartbeatAll(2, func(int) *wireAttempt { return &a.wire })
	c.Args[1] = k.shas[beatAllScript.Name]
	text, err := k.client.Do(context.Background(), c.Args...).Text()
	answer, again, _ := strings.Cut(text, "\n")
	if err != nil || again != answer {
		return fmt.Sprintf("%q, %v", text, err)
	}
	return answer
}

// explain fails the test with what is left of the failed sequence when all is left out that it does not need.
func (k *scriptServer) explain(t *testing.T, failed *sequence) {
	t.Helper()
	least := k.shrink(failed.plan)
	var lines []string
	k.play(newSequence(least, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }))
	t.Fatalf("sequence %d of the seed: %s\nwith %d of its %d steps (gap %v, PUBLISH counts %v, few at once %v, TTLs %v):\n%s", failed.index,
		failed.failure, len(least.steps), len(failed.steps), least.gap, least.single, least.few, least.ttls, strings.Join(lines, "\n"))
}

// shrink leaves out steps as long as what is left fails in any way.
func (k *scriptServer) shrink(p plan) plan {
	fails := func(p plan) bool {
		s := newSequence(p, nil)
		k.play(s)
		return s.failure != ""
	}
	for size := len(p.steps) / 2; size > 0; {
		less := false
		for i := 0; i+size <= len(p.steps) && !less; i++ {
			q := p
			q.steps = slices.Delete(slices.Clone(p.steps), i, i+size)
			less = fails(q)
			if !less && i+size < len(p.steps) { // the time it took may matter
				q.steps[i].wait = min(maxWait, q.steps[i].wait+p.steps[i].wait)
				less = fails(q)
			}
			if less {
				p = q
			}
		}
		if !less {
			size /= 2
		}
	}
	return p
}
