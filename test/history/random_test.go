package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// Times of the simulation, in steps of its clock.
const (
	leaseTTL = 1000
	stay     = 40 // inside, at most
	answer   = 10 // longest time of an answer
	patience = 3000
)

// sim is a lock on one key that serves its queue in order, and what its callers do.
type sim struct {
	*rand.Rand
	store    Store
	pauses   bool
	calls    []*Call
	faults   []Event
	fence    uint64
	value    int64
	served   int64 // when the last one was let in
	writer   int64 // until then an exclusive holder is inside
	readers  int64 // or others
	permits  []int64
	asleep   *Call // it stopped after it had read
	lastSeen map[string]int64
}

// simulate returns a history that breaks no rule, of n calls for each key. With pauses holders are stopped for longer than their leases, so
// it is not linearizable over a blind store.
func simulate(rnd *rand.Rand, store Store, pauses bool, keys, n int) *History {
	h := &History{Ends: map[string]int64{}}
	for key := range keys {
		load := int64(stay * 2 / 3) // time for each call
		if pauses {
			load = stay * 3
		}
		s := sim{Rand: rnd, store: store, pauses: pauses, lastSeen: h.Ends}
		type arrival struct {
			c  *Call
			at int64 // in the queue
		}
		var queue []arrival
		for i := range n {
			asked := 1 + rnd.Int64N(int64(n)*load)
			c := &Call{Request: Request{Caller: strconv.Itoa(i), Key: strconv.Itoa(key), Deadline: asked + patience}, Asked: asked}
			c.Process = fmt.Sprint("p", rnd.IntN(4))
			c.Queued = asked + 1 + rnd.Int64N(answer)
			switch rnd.IntN(6) {
			case 0:
				c.Shared = true
			case 1:
				c.Permits = 2 + rnd.IntN(2)
			}
			queue = append(queue, arrival{c, asked + 1 + rnd.Int64N(c.Queued-asked)})
		}
		slices.SortFunc(queue, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
		for _, a := range queue {
			s.serve(a.c, a.at)
		}
		h.Calls, h.Faults = append(h.Calls, s.calls...), append(h.Faults, s.faults...)
	}
	return h
}

// serve lets the head of the queue in, unless that would be too late.
func (s *sim) serve(c *Call, at int64) {
	s.calls = append(s.calls, c)
	at = max(at, s.served, s.writer)
	slices.Sort(s.permits)
	switch {
	case c.exclusive():
		at = max(at, s.readers)
	case c.Permits > 0 && len(s.permits) >= c.Permits:
		at = max(at, s.permits[len(s.permits)-c.Permits])
	}
	if at > c.Deadline {
		c.Back = c.Deadline + s.Int64N(late)
		return
	}
	s.served = at
	s.fence++
	c.Fence, c.Held = s.fence, at+s.Int64N(answer)
	c.Left = c.Held + 8 + s.Int64N(stay)
	c.Certain, c.Back = c.Left, c.Left+1
	leaves := c.Left
	if c.exclusive() {
		leaves = s.work(c)
		s.writer = leaves
		return
	}
	s.readers = max(s.readers, leaves)
	if c.Permits > 0 {
		s.permits = append(s.permits, leaves)
	}
}

// work reads and writes the value, and returns when the lock is free.
func (s *sim) work(c *Call) (free int64) {
	wakes := s.asleep != nil
	if wakes { // the sleeper writes after this one
		s.wake(c)
	}
	c.Accesses = []*Access{{Read: true, Fence: c.Fence, Was: s.value, New: s.value, From: c.Held + 1, Until: c.Held + 3, Outcome: Got}}
	kill, pause := s.IntN(30) == 0 && !wakes, s.pauses && s.IntN(10) == 0 && !wakes
	if kill || pause {
		c.Process += fmt.Sprint("-disturbed-", c.Fence) // one of its own
	}
	if pause && !kill {
		s.asleep = c
		c.Certain, c.Left, c.Back = c.Held, 0, 0
		return c.Held + leaseTTL
	}
	w := &Access{Fence: c.Fence, Was: s.value, New: s.value + 1, From: c.Held + 4, Until: c.Held + 6, Outcome: Wrote}
	c.Accesses = append(c.Accesses, w)
	if !kill {
		s.value++
		return c.Left
	}
	w.Until, w.Outcome = forever, ""
	if s.IntN(2) == 0 {
		s.value++
	}
	c.Certain, c.Left, c.Back = c.Held+leaseTTL, 0, 0
	s.faults = append(s.faults, Event{Fault: Fault{Kill, c.Process, c.Held + 5}, At: c.Held + 5})
	s.lastSeen[c.Process] = c.Held + 5
	return c.Held + leaseTTL
}

// wake has the sleeper write after the next holder has read and written.
func (s *sim) wake(next *Call) {
	c, at := s.asleep, next.Left
	s.asleep = nil
	w := &Access{Fence: c.Fence, Was: c.Accesses[0].Was, New: c.Accesses[0].Was + 1, From: at, Until: at + 2, Outcome: Wrote}
	if s.store == Compares {
		w.Outcome = Refused
	}
	c.Accesses = append(c.Accesses, w)
	c.Left, c.Back = at+3, at+4
	s.faults = append(s.faults, Event{Fault: Fault{Stop, c.Process, c.Held + 4}, At: at})
}

// flaws are planted into a correct history. They return the rule that is broken, or "" if there is no place for them.
var flaws = map[string]func(rnd *rand.Rand, h *History) string{
	"a second grant": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(a, b *Call) bool { return a.exclusive() && b.exclusive() }, func(a, b *Call) string {
			b.Held = a.Certain - 1
			return "S1 exclusion"
		})
	},
	"a reader beside a writer": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(a, b *Call) bool { return a.exclusive() != b.exclusive() }, func(a, b *Call) string {
			b.Held = a.Certain - 1
			return "S1 exclusion"
		})
	},
	"a fence that repeats": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(a, b *Call) bool { return a.exclusive() || b.exclusive() }, func(a, b *Call) string {
			b.Fence = a.Fence
			return "S2 fences"
		})
	},
	"a permit too many": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(_, b *Call) bool { return b.Permits > 0 }, func(_, b *Call) string {
			for i := range b.Permits {
				more := *b
				more.Caller, more.Fence = fmt.Sprint("more", i), more.Fence+uint64(i+1)<<40
				h.Calls = append(h.Calls, &more)
			}
			return "P1 permits"
		})
	},
	"an overtaken waiter": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(a, b *Call) bool {
			return (a.exclusive() || b.exclusive()) && a.Queued < b.Asked && b.Asked < a.Held
		}, func(a, b *Call) string {
			a.Held, b.Held = b.Held, a.Held
			a.Certain, b.Certain = max(a.Certain, a.Held), max(b.Held, b.Certain-1)
			return "C8 order"
		})
	},
	"a late return": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(_, b *Call) bool { return b.Held > 2*late }, func(_, b *Call) string {
			b.Deadline = b.Held - late - 1
			return "S3 deadlines"
		})
	},
	"a lost update": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(a, b *Call) bool { return written(a) && written(b) }, func(a, b *Call) string {
			for i := range b.Accesses {
				b.Accesses[i].Was, b.Accesses[i].New = a.Accesses[i].Was, a.Accesses[i].New
			}
			return "linearizable"
		})
	},
	"a refusal of the latest fence": func(rnd *rand.Rand, h *History) string {
		return between(rnd, h, func(a, b *Call) bool { return written(a) && written(b) }, func(_, b *Call) string {
			b.Accesses[1].Outcome = Refused
			return "linearizable"
		})
	},
}

func written(c *Call) bool {
	return len(c.Accesses) == 2 && c.Accesses[1].Outcome == Wrote && c.exclusive()
}

// between plants a flaw into some two calls, of which one follows the other on a key. Neither was disturbed.
func between(rnd *rand.Rand, h *History, fit func(a, b *Call) bool, plant func(a, b *Call) string) string {
	calls := certain(h.byKey()["0"])
	if len(calls) < 2 {
		return ""
	}
	first := rnd.IntN(len(calls) - 1)
	for i := range len(calls) - 1 {
		at := (first + i) % (len(calls) - 1)
		a, b := calls[at], calls[at+1]
		if a.Certain == a.Left && b.Certain == b.Left && a.Held < b.Held && fit(a, b) && !h.disturbed(a) && !h.disturbed(b) {
			return plant(a, b)
		}
	}
	return ""
}

// Random histories of a correct lock pass, and each flaw that is planted into one is found.
func TestRandomHistories(t *testing.T) {
	rules := Rules{Store: Compares, Late: late}
	planted, plays := map[string]int{}, testscope.Scale(30, 1000)
	all := testseed.Each(t, plays, func(seed uint64) {
		require.Empty(t, simulate(rand.New(rand.NewPCG(seed, 0)), Compares, true, 2, 40).Check(rules), "seed %d", seed)
		for name, plant := range flaws {
			rnd := rand.New(rand.NewPCG(seed, 0))
			h := simulate(rnd, Compares, true, 2, 40)
			rule := plant(rnd, h)
			if rule == "" {
				continue
			}
			planted[name]++
			at := slices.IndexFunc(h.Check(rules), func(v Violation) bool { return v.Rule == rule && len(v.Calls) <= 4 })
			require.NotEqual(t, -1, at, "seed %d, %s: want %s, found %v", seed, name, rule, h.Check(rules))
		}
	})
	t.Log(planted)
	for name := range flaws {
		require.True(t, !all || planted[name] > plays/2, "%s was planted too seldom", name)
	}
}

// The same pauses over a store that compares no fences lose updates, and without pauses they do not.
func TestRandomPausesOverABlindStore(t *testing.T) {
	paused := 0
	all := testseed.Each(t, 30, func(seed uint64) {
		calm := simulate(rand.New(rand.NewPCG(seed, 0)), Blind, false, 1, 40)
		require.Empty(t, calm.Check(Rules{Store: Blind, Late: late}), "seed %d", seed)
		h := simulate(rand.New(rand.NewPCG(seed, 0)), Blind, true, 1, 40)
		stopped := slices.ContainsFunc(h.Faults, func(f Event) bool { return f.Name == Stop })
		if stopped {
			paused++
		}
		found := h.Check(Rules{Store: Blind, Late: late})
		require.Equal(t, stopped, len(found) > 0, "seed %d: %v", seed, found)
		for _, v := range found {
			require.Equal(t, "linearizable", v.Rule)
			require.Len(t, v.Calls, 2, "%v", v)
		}
	})
	require.True(t, !all || paused > 5)
}

// What a check of a long run takes.
func BenchmarkCheck(b *testing.B) {
	for _, keys := range []int{4, 16, 64} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			h := simulate(rand.New(rand.NewPCG(1, 2)), Compares, true, keys, 100_000/keys)
			accesses := 0
			for _, c := range h.Calls {
				accesses += len(c.Accesses)
			}
			for b.Loop() {
				start := time.Now()
				require.Empty(b, h.Check(Rules{Store: Compares, Late: late}))
				b.ReportMetric(time.Since(start).Seconds(), "s")
			}
			b.ReportMetric(float64(accesses), "accesses")
		})
	}
}
