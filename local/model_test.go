package local_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/local"
)

// The model test takes random steps, and after each compares what every caller sees with a model that is too simple to be
// wrong: a list of holders and a list of waiters.
const (
	modelSteps   = 400_000
	modelEpisode = 400 // steps with one queue; then it is closed and drained
	modelCallers = 14
)

var modelKeys = []string{"a", "b"}

// modelKey is the expected state of one key.
type modelKey struct {
	inside, waiting []*actor
	open            bool
	pins            int
}

// actor is a caller and what it should see.
type actor struct {
	*caller
	name    int
	at      *modelKey
	key     string
	shared  bool
	want    string
	expires time.Time
}

type model struct {
	t      *testing.T
	rand   *rand.Rand
	queue  *queue
	keys   map[string]*modelKey
	actors []*actor
	clock  int // makes each deadline unique
	closed bool
	last   string // the step taken, for the message
}

func TestModel(t *testing.T) {
	testseed.Each(t, testscope.Scale(modelSteps/10, modelSteps)/modelEpisode, func(seed uint64) {
		synctest.Test(t, func(t *testing.T) { newModel(t, seed).run() })
	})
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rand: rand.New(rand.NewPCG(seed, 0)), queue: newQueue(), keys: map[string]*modelKey{}}
	for _, key := range modelKeys {
		m.keys[key] = &modelKey{}
	}
	for i := range modelCallers {
		m.actors = append(m.actors, &actor{name: i, want: "out"})
	}
	return m
}

func (m *model) run() {
	for range modelEpisode {
		m.step()
		m.compare()
	}
	m.close()
	m.compare()
	for !m.empty() {
		m.leave()
		m.compare()
	}
	require.True(m.t, drained(m.queue))
}

func (m *model) step() {
	a := m.actors[m.rand.IntN(len(m.actors))]
	switch {
	case m.rand.IntN(10) == 0:
		m.pins(modelKeys[m.rand.IntN(len(modelKeys))])
	case m.rand.IntN(20) == 0:
		m.sleep()
	case m.rand.IntN(modelEpisode) == 0:
		m.close()
	case a.want == "waiting":
		m.giveUp(a)
	case a.want == "in":
		m.inside(a)
	default:
		m.enter(a)
	}
}

// compare looks at all callers and at the queue.
func (m *model) compare() {
	synctest.Wait()
	for _, a := range m.actors {
		if a.caller != nil && a.state != a.want {
			m.t.Fatalf("after %s: caller %d is %q, should be %q", m.last, a.name, a.state, a.want)
		}
	}
	got := map[string]int{}
	m.queue.Each(func(key string, _ int, _ *baton, waiting int) { got[key] = waiting })
	for key, k := range m.keys {
		waiting, used := got[key]
		if used != k.used() || waiting != len(k.waiting) {
			m.t.Fatalf("after %s: key %s used %v, waiting %d, should be %v, %d", m.last, key, used, waiting, k.used(), len(k.waiting))
		}
	}
	if drained(m.queue) != (m.closed && m.empty()) {
		m.t.Fatalf("after %s: drained %v", m.last, drained(m.queue))
	}
}

func (k *modelKey) used() bool { return len(k.inside)+len(k.waiting)+k.pins > 0 }

func (m *model) empty() bool {
	return !slices.ContainsFunc(modelKeys, func(key string) bool { return m.keys[key].used() })
}

// admit admits the waiters that may enter now.
func (k *modelKey) admit() {
	if len(k.inside) == 0 {
		k.open = false
	}
	for len(k.waiting) > 0 && (len(k.inside) == 0 || k.open && k.waiting[0].shared) {
		a := k.waiting[0]
		k.waiting, k.inside = k.waiting[1:], append(k.inside, a)
		a.want = "in"
	}
}

// out removes a from where it is.
func (k *modelKey) out(a *actor, want string) {
	same := func(b *actor) bool { return a == b }
	k.inside = slices.DeleteFunc(k.inside, same)
	k.waiting = slices.DeleteFunc(k.waiting, same)
	a.want = want
	k.admit()
}

// refuses returns why a newcomer, or a caller of Again, may not wait.
func (m *model) refuses(k *modelKey, want ask, again bool) string {
	switch {
	case m.closed:
		return "closed"
	case want.NoWait:
		return "busy"
	case !again && want.Limit >= 0 && len(k.waiting) >= want.Limit:
		return "full"
	}
	return ""
}

func (m *model) ask(a *actor) ask {
	want := ask{Shared: a.shared, NoWait: m.rand.IntN(10) == 0, Limit: local.Unlimited}
	if m.rand.IntN(4) == 0 {
		want.Limit = m.rand.IntN(4)
	}
	a.expires = time.Time{}
	if m.rand.IntN(4) == 0 {
		m.clock++ // no two at the same moment: their order would be undefined
		a.expires = time.Now().Add(time.Duration(1+m.rand.IntN(20))*time.Millisecond + time.Duration(m.clock))
		want.Deadline = a.expires
	}
	return want
}

func (m *model) enter(a *actor) {
	a.key, a.shared = modelKeys[m.rand.IntN(len(modelKeys))], m.rand.IntN(2) == 0
	k, want := m.keys[a.key], m.ask(a)
	m.last = fmt.Sprintf("%d entering %s as %+v", a.name, a.key, want)
	a.at = k
	admitted := len(k.waiting) == 0 && (len(k.inside) == 0 || a.shared && k.open)
	reason := m.refuses(k, want, false)
	switch {
	case reason == "closed" || !admitted && reason != "":
		a.want = reason
	default:
		k.waiting = append(k.waiting, a)
		a.want = "waiting"
		k.admit()
	}
	a.caller = arrives(m.queue, a.key, want)
}

func (m *model) giveUp(a *actor) {
	m.last = fmt.Sprintf("%d giving up", a.name)
	a.at.out(a, "canceled")
	a.givesUp()
}

// inside does one of the things that a holder of the turn may do.
func (m *model) inside(a *actor) {
	alone := len(a.at.inside) == 1 && len(a.at.waiting) == 0
	switch n := m.rand.IntN(10); {
	case n < 4:
		m.last = fmt.Sprintf("%d passing", a.name)
		if alone {
			a.at.open = false
			require.Equal(m.t, local.Kept, a.passes(), m.last)
			return
		}
		a.at.out(a, "out")
		require.Equal(m.t, local.Passed, a.passes(), m.last)
	case n < 6:
		m.last = fmt.Sprintf("%d leaving", a.name)
		a.at.out(a, "out")
		require.True(m.t, a.leaves())
	case a.shared && n < 8:
		m.last = fmt.Sprintf("%d sharing", a.name)
		a.at.open = true
		a.at.admit()
		a.shares()
	case a.shared:
		m.again(a)
	}
}

func (m *model) again(a *actor) {
	k, want := a.at, m.ask(a)
	m.last = fmt.Sprintf("%d coming again as %+v", a.name, want)
	k.open = false
	if len(k.inside) > 1 {
		if reason := m.refuses(k, want, true); reason != "" {
			k.out(a, reason)
		} else {
			k.out(a, "waiting")
			k.waiting = slices.Insert(k.waiting, 0, a)
		}
	}
	a.again(want)
}

// pins pins a key, unpins it, or takes its idle turn.
func (m *model) pins(key string) {
	k := m.keys[key]
	m.last = "a pin of " + key
	switch n := m.rand.IntN(3); {
	case n == 0 && len(k.inside) > 0:
		k.inside[0].turn.Pin()
		k.pins++
	case n == 1 && k.pins > 0:
		m.queue.Unpin(key, 0)
		k.pins--
	case n == 2:
		var idle local.Turn[*baton]
		require.Equal(m.t, k.pins > 0 && len(k.inside) == 0, m.queue.Idle(&idle, key, 0))
		idle.Leave()
	}
}

// sleep lets some deadlines pass, one after the other.
func (m *model) sleep() {
	m.last = "sleeping"
	until := time.Now().Add(3 * time.Millisecond)
	due := slices.Clone(m.actors)
	slices.SortFunc(due, func(a, b *actor) int { return a.expires.Compare(b.expires) })
	for _, a := range due {
		if a.want == "waiting" && !a.expires.IsZero() && a.expires.Before(until) {
			a.at.out(a, "timeout")
		}
	}
	time.Sleep(time.Until(until))
}

func (m *model) close() {
	m.last = "closing"
	m.closed = true
	for _, k := range m.keys {
		for _, a := range k.waiting {
			a.want = "closed"
		}
		k.waiting = nil
	}
	m.queue.Close()
}

// leave is how a closed queue becomes empty.
func (m *model) leave() {
	for _, key := range modelKeys {
		k := m.keys[key]
		switch {
		case len(k.inside) > 0:
			m.last = "leaving at the end"
			a := k.inside[0]
			k.out(a, "out")
			a.leaves()
			return
		case k.pins > 0:
			m.last = "unpinning at the end"
			k.pins--
			m.queue.Unpin(key, 0)
			return
		}
	}
}
