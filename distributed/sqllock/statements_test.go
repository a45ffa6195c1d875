package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// partTTL is that of leases of the faulty backend: they expire, but not before a part ends.
const partTTL = 2 * ttl

// part is what happens to a lock between a backend whose statements are broken and a sound one. Together they use every statement.
type part struct {
	name  string
	other testlocker.Change // the request of the sound one's lease; nil: the lock is free
	run   func(s *scene, other distributed.Lease)
}

func writing(*distributed.Request) {}

var allParts = []part{
	{"a free lock", nil, func(s *scene, _ distributed.Lease) {
		l := s.take(s.enter())
		s.hold(l)
		if l = s.take(s.enter(by("another"), prevIs(l))); l != nil { // the lease before is not its own
			l.StartRelease()
		}
	}},
	{"again", nil, func(s *scene, _ distributed.Lease) {
		s.drop(s.take(s.enter(prevIs(s.take(s.enter())))))
	}},
	{"a queue", writing, func(s *scene, other distributed.Lease) {
		l, p := s.enter()
		time.Sleep(distributed.HeartbeatInterval(partTTL) * 5 / 4)
		free(s.t, other)
		s.hold(s.take(l, p))
	}},
	{"a place that is left", writing, func(s *scene, other distributed.Lease) {
		if _, p := s.enter(); p != nil {
			s.call("leave", p.Leave)
		}
		free(s.t, other)
	}},
	{"no wait", writing, func(s *scene, other distributed.Lease) {
		s.drop(s.take(s.enter(noWait)))
		free(s.t, other)
	}},
	{"readers", reading, func(s *scene, other distributed.Lease) {
		l := s.take(s.enter(reading))
		free(s.t, other)
		s.hold(l)
	}},
	{"a reader that queues", writing, func(s *scene, other distributed.Lease) {
		l, p := s.enter(reading)
		free(s.t, other)
		s.drop(s.take(l, p))
	}},
	{"a permit that queues", permits(1), func(s *scene, other distributed.Lease) {
		l, p := s.enter(permits(1))
		free(s.t, other)
		s.hold(s.take(l, p))
	}},
	{"a permit beside another", permits(1), func(s *scene, other distributed.Lease) {
		s.hold(s.take(s.enter(permits(2))))
		free(s.t, other)
	}},
	{"a writer that becomes a reader", nil, func(s *scene, _ distributed.Lease) {
		if l := s.take(s.enter()); l != nil {
			s.call("downgrade", l.Downgrade)
			s.drop(l)
		}
	}},
	{"a dead holder", lasting(time.Second), func(s *scene, other distributed.Lease) {
		other.Abandon()
		s.hold(s.take(s.enter()))
	}},
}

// scene is a part that is played.
type scene struct {
	t      *testing.T
	key    string
	faulty *Backend
	fence  uint64    // the greatest that was seen
	asked  time.Time // when the faulty backend was answered last
}

// draw checks that fences grow in the order of the holders.
func (s *scene) draw(l distributed.Lease) {
	n, ok := l.NextFence()
	assert.True(s.t, ok && n > s.fence, "fence %d (there is one: %t) after %d", n, ok, s.fence)
	s.fence = n
}

// quick is less than it takes until a lease that is not renewed is lost, or a call without an answer is given up. On a busy machine a
// call may take longer, and then fail; one that is answered as soon as this hides that a statement was broken.
const quick = partTTL / 4

// call makes a call of the faulty backend, which is answered in time and by nothing but what the contract names.
func (s *scene) call(what string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), partTTL)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	took := time.Since(start)
	assert.Less(s.t, took, partTTL+slack, "%s is answered by its deadline", what)
	switch {
	case errors.Is(err, distributed.ErrHeld):
	case took < quick:
		assert.NoError(s.t, err, "%s: the statement that was broken shows", what)
	case err != nil:
		assert.True(s.t, errors.Is(err, distributed.ErrUnavailable) || errors.Is(err, distributed.ErrLeaseLost), "%s: %v", what, err)
	}
}

// enter returns a lease or a place; neither if the fault came through.
func (s *scene) enter(more ...testlocker.Change) (l distributed.Lease, p distributed.Place) {
	s.call("enter", func(ctx context.Context) (err error) {
		l, p, err = try(ctx, s.faulty, s.key, append(more, lasting(partTTL))...)
		return err
	})
	if s.asked = time.Now(); l != nil {
		s.draw(l)
	}
	return l, p
}

// take waits for the lease of a place.
func (s *scene) take(l distributed.Lease, p distributed.Place) distributed.Lease {
	if p == nil {
		return l
	}
	if l = awaited(s.t, p); l != nil {
		s.draw(l)
	}
	assert.True(s.t, l != nil || time.Since(s.asked) > distributed.ClaimWindow(partTTL)/2+quick, "a place was lost")
	return l
}

// hold keeps a lease until it was renewed twice, and releases it.
func (s *scene) hold(l distributed.Lease) {
	if l == nil {
		return
	}
	time.Sleep(distributed.ClaimWindow(partTTL)/3 + distributed.RenewInterval(partTTL)*5/4)
	if !lapses(l) {
		s.call("refill", l.Refill)
	}
	s.drop(l)
}

func (s *scene) drop(l distributed.Lease) {
	switch {
	case l == nil:
	case lapses(l):
		l.Abandon()
	default:
		s.call("release", l.Release)
	}
}

// lapses reports that the machine was so busy that a lease has expired, or is about to.
func lapses(l distributed.Lease) bool { return !l.Healthy() || time.Until(l.Until()) < quick }

// breach is a statement that is broken: the nth of its kind in a part.
type breach struct {
	kind string
	nth  int
	how  fault
}

// mostBreaches is how many statements of a kind are broken, one after the other. Transactions that do different things have the same
// statements: to queue, to take the lock, to get more fences.
const mostBreaches = 3

// Every statement of a life is lost before it is sent, or carried out and its reply lost, or chosen as the victim of a deadlock: it has one
// effect or none. No call lasts beyond its deadline, fences grow, and nothing stands in the way of others for longer than T and H.
func TestEachStatementIsBroken(t *testing.T) {
	testscope.Long(t, "breaks statements, and waits for what they leave behind")
	each(t, func(t *testing.T, d *database) {
		var all sync.WaitGroup
		atOnce := make(chan struct{}, 12) // most of a part is waiting
		broken := map[breach]bool{}
		for _, p := range allParts {
			for _, one := range p.breaches(t, d) {
				if testscope.Scale(broken[one], false) {
					continue
				}
				broken[one] = true
				atOnce <- struct{}{}
				all.Go(func() {
					defer func() { <-atOnce }()
					t.Run(fmt.Sprintf("%s/%s/%d/%s", p.name, one.kind, one.nth, one.how), func(t *testing.T) { p.play(t, d, one) })
				})
			}
		}
		all.Wait()
		t.Logf("%d statements were broken", len(broken))
	})
}

// breaches plays a part and returns all that can be broken in it.
func (p part) breaches(t *testing.T, d *database) (all []breach) {
	t.Helper()
	for kind, n := range p.play(t, d, breach{}) {
		for nth := 1; nth <= min(n, mostBreaches); nth++ {
			for _, how := range []fault{lostRequest, lostReply, collides} {
				all = append(all, breach{kind, nth, how})
			}
		}
	}
	return all
}

// kindOfText is enough to tell all statements from each other.
func kindOfText(text string) string {
	kind := strings.Join(strings.Fields(text), " ")
	return kind[:min(len(kind), 44)]
}

var played atomic.Int64

// play plays a part, and then has the sound backend take the lock. It returns how many statements of a kind there were.
func (p part) play(t *testing.T, d *database, broken breach) (count map[string]int) {
	t.Helper()
	if d.dialect == SQLite {
		d = newSQLite(t) // a file is written by one at a time
	}
	over, sound := d.over(d.connector), d.backend(t)
	s := &scene{t: t, key: fmt.Sprint("k", played.Add(1)), faulty: over.backend(t)}
	var other distributed.Lease
	if p.other != nil {
		other = enter(t, sound, s.key, p.other)
		s.draw(other)
	}
	count = map[string]int{}
	over.wire.breaksBy(func(s *statement) fault {
		kind := kindOfText(s.text)
		if count[kind]++; kind == broken.kind && count[kind] == broken.nth {
			return broken.how
		}
		return passes
	})
	p.run(s, other)
	start := time.Now()
	l := acquired(t, sound, s.key)
	assert.Less(t, time.Since(start), partTTL+distributed.HeartbeatInterval(partTTL)+slack, "what the fault has left behind stands in the way")
	s.draw(l)
	assertAlone(t, sound, s.key)
	free(t, l)
	assert.NoError(t, s.faulty.Close()) // so that no statement is counted any more
	return count
}

// assertAlone checks that nothing but the owner is left of a lock.
func assertAlone(t *testing.T, b *Backend, key string) {
	t.Helper()
	var owner string
	var queued, members, rows int
	ask(t, b, "SELECT owner, queued, members FROM {locks} WHERE name = '"+key+"'", &owner, &queued, &members)
	ask(t, b, "SELECT COUNT(*) FROM {waiters} WHERE name = '"+key+"'", &rows)
	assert.NotEmpty(t, owner)
	assert.Equal(t, [3]int{}, [3]int{queued, members, rows}, "rows that are counted as waiting, as holding, and that are there")
}
