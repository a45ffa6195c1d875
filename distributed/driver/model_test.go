package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/internal/judge"
	"github.com/wllock/wllock/internal/race"
)

// simWorld is one schedule: processes with users over one service, and the judge.
type simWorld struct {
	*judge.World
	v      *simService
	client func(ctx context.Context, v *simService, ttl time.Duration, seed1, seed2 uint64) *simClient
	seed   uint64
}

// simProcess is what the judge asks.
type simProcess struct {
	*Backend[simWire]
	c *simClient
}

// entry returns what the service knows of a request; nil: nothing.
func (p simProcess) entry(x any) *simEntry { return p.c.v.known[AttemptOf[simWire](x).Wire.entry.id] }

// Waits implements judge.Process.
func (p simProcess) Waits(x distributed.Place) bool { return AttemptOf[simWire](x).Waiting() }

// Has implements judge.Process.
func (p simProcess) Has(x any) (is bool) {
	p.c.v.do(func() {
		e := p.entry(x)
		is = e != nil && !e.gone
	})
	return is
}

// MayBeLost implements judge.Process: the lease, or its session, has expired.
func (p simProcess) MayBeLost(l distributed.Lease) (is bool) {
	p.c.v.do(func() {
		entry := AttemptOf[simWire](l).Wire.entry
		_, alive := p.c.v.sessions[entry.session]
		e := p.entry(l)
		if entry.alone != nil {
			alive = e != nil && e.expired.IsZero()
		}
		is = !alive && !p.c.v.unused[entry.session] || e != nil && !e.broken.IsZero()
	})
	return is
}

// HasExpired implements judge.Process: no later attempt of the instance makes that hard to tell.
func (p simProcess) HasExpired(l distributed.Lease) (is bool) {
	a := AttemptOf[simWire](l)
	p.c.v.do(func() {
		e := p.entry(l)
		is = e != nil && e.alone != nil && !e.expired.IsZero() && p.c.v.latest[a.Instance] == a.Number
	})
	return is
}

// Broken implements judge.Process.
func (p simProcess) Broken(l distributed.Lease) (is bool) {
	p.c.v.do(func() {
		e := p.entry(l)
		is = e != nil && !e.broken.IsZero() && time.Since(e.broken) < p.c.ttl/10
	})
	return is
}

// Unlearned implements judge.Process: who is told of all knows it soon, unless it was closed, and looks no more.
func (p simProcess) Unlearned(l distributed.Lease) (wrong string) {
	p.c.v.do(func() {
		e := p.entry(l)
		since := func(at time.Time) bool { return !at.IsZero() && time.Since(at) > p.c.ttl/4 } // two looks at three
		switch {
		case e == nil || e.watcher == nil || !l.Healthy() || p.c.b.Closed():
		case since(e.broken):
			wrong = "a holder does not know that its lease was broken"
		case !e.gone && since(e.contends) && !l.Contended():
			wrong = "a holder does not know that others wait"
		}
	})
	return wrong
}

// Kept implements judge.Process.
func (p simProcess) Kept(l distributed.Lease) (is bool) {
	p.c.v.do(func() {
		e := p.entry(l)
		is = e != nil && !e.gone && !e.copied
	})
	return is
}

// LeastLeft implements judge.Process: a process without a session has to claim a grant in time.
func (p simProcess) LeastLeft() time.Duration {
	if p.c.lane == nil {
		return 0
	}
	return p.c.ttl / 10
}

// Overdue implements judge.Process.
func (p simProcess) Overdue(x distributed.Place) (wrong string) {
	a, now := AttemptOf[simWire](x), time.Now()
	late := 5 * a.TTL
	if !a.Waiting() {
		return ""
	}
	if closed := p.c.closedAt(); !closed.IsZero() {
		if now.Sub(closed) > late {
			return "it waits, and Close was called long ago"
		}
		return ""
	}
	p.c.v.do(func() {
		switch e := p.entry(x); {
		case e == nil:
		case !e.expired.IsZero() && now.Sub(e.expired) > late:
			wrong = "it waits, and its session has expired long ago"
		case !e.broken.IsZero() && now.Sub(e.broken) > late:
			wrong = "it waits, and its request has gone long ago"
		case !e.gone && !e.turn.IsZero() && now.Sub(e.turn) > late:
			wrong = "it waits, and its turn has come long ago"
		}
	})
	return wrong
}

// play plays a schedule: two processes with three users each, one of which may be closed in the middle. When the faults end, everybody
// gets the lock, and in the end nothing is left.
func (w *simWorld) play() {
	const ttl = 6 * time.Second
	rnd := rand.New(rand.NewPCG(w.seed, 0))
	ctx, cancel := context.WithCancel(context.Background())
	var users sync.WaitGroup
	var clients []*simClient
	for i := range 2 {
		c := w.client(ctx, w.v, ttl, w.seed, uint64(i+1))
		clients = append(clients, c)
		for j := range 3 {
			least := ttl - time.Duration(j)*ttl/8 // each has a session of its own, or shares one
			u := w.NewUser(simProcess{c.b, c}, fmt.Sprint(i, "-", j), least, rand.New(rand.NewPCG(w.seed, uint64(10*i+j+100))))
			users.Go(func() { u.Run(6) })
		}
	}
	for range rnd.IntN(3) {
		time.Sleep(time.Duration(rnd.Int64N(int64(4 * ttl))))
		w.v.do(func() { w.v.breakOne(rnd.IntN(2)) })
	}
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.Int64N(int64(10 * ttl))))
		clients[0].close()
		w.Count("closed")
	}
	users.Wait()
	for _, c := range clients {
		c.withFaults(false)
	}
	time.Sleep(11 * ttl) // abandoned leases expire; answers have come
	last := w.client(ctx, w.v, ttl, w.seed, 50)
	last.withFaults(false)
	for _, key := range []string{"k0", "k1"} {
		l, p, err := last.b.Enter(ctx, distributed.Request{Key: key, Instance: "last", TTL: ttl})
		if err != nil || p != nil {
			w.Failf("%s is not free in the end: %v", key, err)
			continue
		}
		_ = l.Release(ctx)
	}
	synctest.Wait() // the goroutines whose answers have come know them
	for _, c := range append(clients, last) {
		if !c.b.Closed() && !c.b.Idle() {
			w.Failf("a Backend is not idle in the end")
		}
		_ = c.b.Close()
	}
	cancel()
	for _, c := range append(clients, last) {
		c.late.Wait()
	}
}

// playAll plays schedules of processes with sessions, and of those that renew their leases.
func playAll(t *testing.T, schedules, long int) {
	kinds := map[string]func(context.Context, *simService, time.Duration, uint64, uint64) *simClient{
		"sessions": newSimClient, "watches": newSimWatcher, "renewals": newSimRenewer,
	}
	for kind, client := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			judge.Play(t, schedules, long, func(w *judge.World, seed uint64) { (&simWorld{w, newSimService(), client, seed}).play() })
		})
	}
}

// TestAnySchedule plays schedules with requests that are lost, late or repeated, processes that fall silent, callers that leave, an
// operator who deletes requests, and a Close in the middle.
func TestAnySchedule(t *testing.T) {
	t.Parallel()
	playAll(t, 200, 200)
}

// TestManySchedules is the same with 2,000, or with WLLOCK_LONG=1 100,000.
func TestManySchedules(t *testing.T) {
	race.Skip(t, "TestAnySchedule is enough to find races")
	t.Parallel()
	playAll(t, 2000, 100_000)
}
