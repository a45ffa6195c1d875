package driver

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/internal/judge"
	"github.com/wllock/wllock/internal/race"
)

// simProcess is what the judge asks.
type simProcess struct {
	*Backend[simWire]
	c *simClient
}

// knows reports what the service says of a request that it knows, and false of others.
func (p simProcess) knows(x any, is func(e *simEntry) bool) (known bool) {
	p.c.v.do(func() {
		e := p.entry(x)
		known = e != nil && is(e)
	})
	return known
}

// entry returns what the service knows of a request; nil: nothing.
func (p simProcess) entry(x any) *simEntry { return p.c.v.known[AttemptOf[simWire](x).Wire.entry.id] }

// Waits implements judge.Process, as all below.
func (p simProcess) Waits(x distributed.Place) bool { return AttemptOf[simWire](x).Waiting() }

func (p simProcess) Has(x any) bool { return p.knows(x, func(e *simEntry) bool { return !e.gone }) }

// MayBeLost reports that the lease, or its session, has expired.
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

// HasExpired reports it if no later attempt of the instance makes that hard to tell.
func (p simProcess) HasExpired(l distributed.Lease) bool {
	a := AttemptOf[simWire](l)
	return p.knows(l, func(e *simEntry) bool {
		return e.alone != nil && !e.expired.IsZero() && p.c.v.latest[a.Instance] == a.Number
	})
}

func (p simProcess) Broken(l distributed.Lease) bool {
	return p.knows(l, func(e *simEntry) bool { return !e.broken.IsZero() && time.Since(e.broken) < p.c.ttl/10 })
}

// Unlearned names what a process does not know that is told of all. One that was closed looks no more.
func (p simProcess) Unlearned(l distributed.Lease) (wrong string) {
	p.knows(l, func(e *simEntry) bool {
		since := func(at time.Time) bool { return !at.IsZero() && time.Since(at) > p.c.ttl/4 } // two looks at three
		switch {
		case e.watcher == nil || !l.Healthy() || p.c.b.Closed():
		case since(e.broken):
			wrong = "a holder does not know that its lease was broken"
		case !e.gone && since(e.contends) && !l.Contended():
			wrong = "a holder does not know that others wait"
		}
		return true
	})
	return wrong
}

func (p simProcess) Kept(l distributed.Lease) bool {
	return p.knows(l, func(e *simEntry) bool { return !e.gone && !e.copied })
}

// HasDetached is of judge's transferer. While one silence follows another, nothing is removed.
func (p simProcess) HasDetached(id string) (is bool) {
	silent := false
	p.c.with(func() { silent = time.Since(p.c.silent) < p.c.ttl/2 })
	if silent {
		return false
	}
	p.c.v.do(func() {
		e := p.c.v.known["detached-"+id]
		is = e != nil && !e.gone && !e.copied
	})
	return is
}

// LeastLeft knows that a process without a session has to claim a grant in time.
func (p simProcess) LeastLeft() time.Duration {
	if p.c.lane == nil {
		return 0
	}
	return p.c.ttl / 10
}

func (p simProcess) Overdue(x distributed.Place) (wrong string) {
	a, now := AttemptOf[simWire](x), time.Now()
	late := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) > 5*a.TTL }
	var closed time.Time
	p.c.with(func() { closed = p.c.closed })
	switch {
	case !a.Waiting():
		return ""
	case late(closed):
		return "it waits, and Close was called long ago"
	case !closed.IsZero():
		return ""
	}
	p.knows(x, func(e *simEntry) bool {
		switch {
		case late(e.expired):
			wrong = "it waits, and its session has expired long ago"
		case late(e.broken):
			wrong = "it waits, and its request has gone long ago"
		case !e.gone && late(e.turn):
			wrong = "it waits, and its turn has come long ago"
		}
		return true
	})
	return wrong
}

// Calm implements judge.Player, as Close.
func (p simProcess) Calm() { p.c.withFaults(false) }

func (p simProcess) Close() error {
	p.c.with(func() { p.c.closed = time.Now() })
	return p.c.b.Close()
}

// play plays a schedule of processes of a kind, in which an operator deletes requests.
func play(w *judge.World, kind string, seed uint64) {
	const ttl = 6 * time.Second
	v := newSimService()
	ctx, cancel := context.WithCancel(context.Background())
	open := func(n uint64) simProcess {
		c := newSimClient(ctx, v, kind, ttl, seed, n)
		return simProcess{c.b, c}
	}
	judge.Schedule(w, seed, ttl, open, func(rnd *rand.Rand, _ []simProcess) {
		for range rnd.IntN(3) {
			time.Sleep(time.Duration(rnd.Int64N(int64(4 * ttl))))
			v.do(func() { v.breakOne(rnd.IntN(2)) })
		}
	})
	cancel()
	for _, c := range v.clients {
		c.late.Wait()
	}
}

// playAll plays schedules of processes of each kind.
func playAll(t *testing.T, schedules, long int) {
	for _, kind := range []string{simSessions, simWatches, simRenewals} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			judge.Play(t, schedules, long, func(w *judge.World, seed uint64) { play(w, kind, seed) })
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
