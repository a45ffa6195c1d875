package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/testscope"
)

// scene is a lock between a backend whose statements are broken, and one whose are not.
type scene struct {
	t             *testing.T
	key           string
	faulty, sound *sqllock.Backend
	fence         uint64    // the greatest that was seen
	queued        time.Time // when the faulty backend got its last place
}

// parts are what happens in a scene after its beginning. Together they use every statement of a backend.
var parts = []struct {
	name  string
	begin func(s *scene) distributed.Lease // the sound backend's lease; nil: the lock is free
	run   func(s *scene, other distributed.Lease)
}{
	{"a free lock", func(*scene) distributed.Lease { return nil }, func(s *scene, _ distributed.Lease) {
		l := s.enter(request(s.key, kept))
		s.hold(l)
		l = s.enter(request(s.key, kept, func(r *distributed.Request) { r.Prev = l })) // another instance: the lease is not its own
		s.leave(l)
	}},
	{"again", func(*scene) distributed.Lease { return nil }, func(s *scene, _ distributed.Lease) {
		r := request(s.key, kept)
		r.Prev = s.enter(r)
		s.drop(s.enter(r))
	}},
	{"a queue", owned, func(s *scene, other distributed.Lease) {
		p := s.queue(request(s.key, kept))
		time.Sleep(distributed.HeartbeatInterval(keptTTL) * 5 / 4)
		release(s.t, other)
		s.hold(s.take(p))
	}},
	{"a place that is left", owned, func(s *scene, other distributed.Lease) {
		s.quit(s.queue(request(s.key, kept)))
		release(s.t, other)
	}},
	{"no wait", owned, func(s *scene, other distributed.Lease) {
		s.drop(s.enter(request(s.key, kept, func(r *distributed.Request) { r.NoWait = true })))
		release(s.t, other)
	}},
	{"readers", read, func(s *scene, other distributed.Lease) {
		l := s.enter(request(s.key, kept, shared))
		release(s.t, other)
		s.hold(l)
	}},
	{"a reader that queues", owned, func(s *scene, other distributed.Lease) {
		p := s.queue(request(s.key, kept, shared))
		release(s.t, other)
		s.drop(s.take(p))
	}},
	{"a permit that queues", permitted, func(s *scene, other distributed.Lease) {
		p := s.queue(request(s.key, kept, permit))
		release(s.t, other)
		s.hold(s.take(p))
	}},
	{"a permit beside another", permitted, func(s *scene, other distributed.Lease) {
		l := s.enter(request(s.key, kept, shared, func(r *distributed.Request) { r.Limit = 2 }))
		s.hold(l)
		release(s.t, other)
	}},
	{"a writer that becomes a reader", func(*scene) distributed.Lease { return nil }, func(s *scene, _ distributed.Lease) {
		l := s.enter(request(s.key, kept))
		if l == nil {
			return
		}
		d, _ := distributed.As[distributed.Downgrader](l)
		s.call("downgrade", func(ctx context.Context) error { return d.Downgrade(ctx) })
		s.drop(l)
	}},
	{"a dead holder", func(s *scene) distributed.Lease {
		l := s.lend(request(s.key, func(r *distributed.Request) { r.TTL = time.Second }))
		l.Abandon()
		return l
	}, func(s *scene, _ distributed.Lease) {
		s.hold(s.take(s.queue(request(s.key, kept))))
	}},
}

// What the sound backend holds does not expire, though the machine is busy.
func owned(s *scene) distributed.Lease { return s.lend(request(s.key, safely)) }

func read(s *scene) distributed.Lease { return s.lend(request(s.key, safely, shared)) }

func permitted(s *scene) distributed.Lease { return s.lend(request(s.key, safely, permit)) }

func (s *scene) lend(r distributed.Request) distributed.Lease {
	l := acquired(s.t, s.sound, r)
	s.draw(l)
	return l
}

// draw checks that fences grow in the order of the holders.
func (s *scene) draw(l distributed.Lease) {
	n, ok := l.NextFence()
	if assert.True(s.t, ok, "no fence") {
		assert.Greater(s.t, n, s.fence, "fences grow")
		s.fence = n
	}
}

// quick is less than it takes until a lease that is not renewed is lost, or a call without an answer is given up. On a busy machine a
// call may take longer, and then fail; one that is answered as soon as this hides that a statement was broken.
const quick = keptTTL / 4

// call makes a call of the faulty backend, which is answered in time and by nothing but what the contract names.
func (s *scene) call(what string, f func(ctx context.Context) error) (ok bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), keptTTL)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	took := time.Since(start)
	assert.Less(s.t, took, keptTTL+slack, "%s is answered by its deadline", what)
	if took < quick && !errors.Is(err, distributed.ErrHeld) {
		assert.NoError(s.t, err, "%s: the statement that was broken shows", what)
	}
	if err != nil && !errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, distributed.ErrHeld) && !errors.Is(err, distributed.ErrLeaseLost) {
		assert.NoError(s.t, err, what)
	}
	return err == nil
}

// enter returns the lease, if need be from a place; nil: the fault came through.
func (s *scene) enter(r distributed.Request) (l distributed.Lease) {
	p, ok := distributed.Place(nil), false
	ok = s.call("enter", func(ctx context.Context) (err error) {
		l, p, err = s.faulty.Enter(ctx, r)
		return err
	})
	if ok && p != nil { // of the part "a free lock": its own lease is before it
		s.queued = time.Now()
		return s.take(p)
	}
	return s.got(l)
}

func (s *scene) queue(r distributed.Request) (p distributed.Place) {
	s.call("enter", func(ctx context.Context) error {
		l, place, err := s.faulty.Enter(ctx, r)
		if l != nil { // the holder was slow, and has lost the lock
			s.drop(l)
		}
		p, s.queued = place, time.Now()
		return err
	})
	return p
}

func (s *scene) take(p distributed.Place) distributed.Lease {
	if p == nil {
		return nil
	}
	l := granted(s.t, p)
	assert.True(s.t, l != nil || time.Since(s.queued) > distributed.ClaimWindow(keptTTL)/2+quick, "a place was lost")
	return s.got(l)
}

func (s *scene) got(l distributed.Lease) distributed.Lease {
	if l == nil {
		return nil
	}
	s.draw(l)
	return l
}

// hold keeps a lease until it was renewed twice, and releases it.
func (s *scene) hold(l distributed.Lease) {
	if l == nil {
		return
	}
	time.Sleep(distributed.ClaimWindow(keptTTL)/3 + distributed.RenewInterval(keptTTL)*5/4)
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
func lapses(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return time.Until(l.Until()) < quick
	}
}

// leave gives up without an answer.
func (s *scene) leave(l distributed.Lease) {
	if l != nil {
		l.(distributed.AsyncLease).StartRelease()
	}
}

func (s *scene) quit(p distributed.Place) {
	if p != nil {
		s.call("leave", p.Leave)
	}
}

// Every statement of a life is lost before it is sent, or carried out and its reply lost, or chosen as the victim of a deadlock:
// it has one effect or none. No call lasts beyond its deadline, fences grow, and nothing stands in the way of others for longer than
// T and H.
func TestConnectionIsCutInEachStatement(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onEach(t, true, func(t *testing.T, d database) {
		var all sync.WaitGroup
		tickets := make(chan struct{}, 12) // scenes at a time: most of a scene is waiting
		broken := map[breach]bool{}
		for _, part := range parts {
			for _, one := range breaches(t, d, part.begin, part.run) {
				if testscope.Scale(broken[one], false) {
					continue
				}
				broken[one] = true
				tickets <- struct{}{}
				all.Go(func() {
					defer func() { <-tickets }()
					t.Run(fmt.Sprintf("%s/%s/%d/%s", part.name, one.kind, one.nth, one.how), func(t *testing.T) {
						play(t, d, func(w *wire) { w.breaks(one.kind, one.nth, one.how) }, part.begin, part.run)
					})
				})
			}
		}
		all.Wait()
		t.Logf("%d statements were broken", len(broken))
	})
}

// breach is a statement that is broken: the nth of its kind in a part.
type breach struct {
	kind string
	nth  int
	how  fault
}

// most is how many statements of a kind are broken, one after the other. Transactions that do different things have the same
// statements: to queue, to take the lock, to get more fences.
const most = 3

// breaches plays a part and returns all that can be broken in it.
func breaches(t *testing.T, d database, begin func(*scene) distributed.Lease, run func(*scene, distributed.Lease)) (all []breach) {
	t.Helper()
	kinds, count := play(t, d, func(*wire) {}, begin, run).kinds()
	for _, kind := range kinds {
		for nth := 1; nth <= min(count[kind], most); nth++ {
			for _, how := range []fault{lostRequest, lostReply, collides} {
				if how == collides && kind == "BEGIN" { // of servers, where it waits for nobody
					continue
				}
				all = append(all, breach{kind, nth, how})
			}
		}
	}
	return all
}

// play plays a part and then has the sound backend take the lock.
func play(t *testing.T, d database, breaks func(*wire), begin func(*scene) distributed.Lease, run func(*scene, distributed.Lease)) *wire {
	t.Helper()
	if d.server == nil {
		d = migrated(t, sqliteIn(t)) // a file is written by one at a time
	}
	w := &wire{}
	s := &scene{t: t, key: newName("k"), faulty: d.backend(t, w), sound: d.backend(t, nil)}
	other := begin(s)
	breaks(w)
	run(s, other)
	start := time.Now()
	l := acquired(t, s.sound, request(s.key, safely))
	assert.Less(t, time.Since(start), keptTTL+distributed.HeartbeatInterval(keptTTL)+slack, "what the fault has left behind stands in the way")
	s.draw(l)
	assertAlone(t, d, s.key)
	release(t, l)
	return w
}

// assertAlone checks that nothing but the owner is left of a lock.
func assertAlone(t *testing.T, d database, key string) {
	t.Helper()
	db := d.pool(t, nil)
	var owner string
	var queued, members, rows int
	assert.NoError(t, db.QueryRow("SELECT owner, queued, members FROM wllock_locks WHERE name = '"+key+"'").Scan(&owner, &queued, &members))
	assert.NoError(t, db.QueryRow("SELECT COUNT(*) FROM wllock_waiters WHERE name = '"+key+"'").Scan(&rows))
	assert.NotEmpty(t, owner)
	assert.Equal(t, [3]int{}, [3]int{queued, members, rows}, "rows that are counted as waiting, as holding, and that are there")
}
