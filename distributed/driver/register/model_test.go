package register

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/distributed/driver/internal/judge"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testseed"
)

// process is what the judge asks.
type process struct {
	*Backend
	l *link
}

func id(x any) string { return driver.AttemptOf[wire](x).Wire.ID }

func newProcess(m *memory, seed1, seed2 uint64, faults bool) process {
	l, rnd := newLink(m, seed1, seed2, faults), testseed.Shared(seed1, seed2+1000)
	b := New("sim", l)
	b.newID = func() string { return fmt.Sprintf("%016x", rnd.Uint64()) }
	b.below = func(most time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(most))) }
	return process{b, l}
}

// Closed implements judge.Process, as all below.
func (p process) Closed() bool { return p.client.Closed() }

func (p process) Waits(x distributed.Place) bool { return driver.AttemptOf[wire](x).Waiting() }

// Has leaves out what comes when the document is absent: see Backend.change.
func (p process) Has(x any) bool {
	f := p.l.m.fate(id(x))
	return f.there && !f.copied
}

func (p process) MayBeLost(l distributed.Lease) bool { return p.l.m.fate(id(l)).starved }

// HasExpired knows of none: one that others have taken out looks like one that was removed.
func (process) HasExpired(distributed.Lease) bool { return false }

// Broken knows of none, and so do Unlearned and Kept: no operator is simulated, renewals tell, and a Put that comes late leaves a copy.
func (process) Broken(distributed.Lease) bool { return false }

func (process) Unlearned(distributed.Lease) string { return "" }

func (process) Kept(distributed.Lease) bool { return false }

func (process) LeastLeft() time.Duration { return simTTL / 10 }

func (p process) Overdue(x distributed.Place) string {
	f := p.l.m.fate(id(x))
	switch {
	case !p.Waits(x) || time.Since(f.turn) < 5*simTTL:
	case p.Closed():
		return "it waits, and Close was called"
	case f.there && !f.turn.IsZero() && time.Since(f.heard) > 5*simTTL:
		return "it waits, and its turn has come long ago"
	}
	return ""
}

// play plays a schedule: two processes with three users each, one of which may be closed in the middle. When the faults end, everybody
// gets the lock, and in the end nothing is left.
func play(w *judge.World, seed uint64) {
	rnd, m := rand.New(rand.NewPCG(seed, 0)), newMemory()
	var users sync.WaitGroup
	var all []process
	for i := range 2 {
		p := newProcess(m, seed, uint64(i+1), true)
		all = append(all, p)
		for j := range 3 {
			u := w.NewUser(p, name(i, j), simTTL-time.Duration(j)*simTTL/8, rand.New(rand.NewPCG(seed, uint64(10*i+j+100))))
			users.Go(func() { u.Run(6) })
		}
	}
	for range rnd.IntN(4) {
		time.Sleep(time.Duration(rnd.Int64N(int64(5 * simTTL))))
		all[rnd.IntN(2)].l.set(true, time.Duration(rnd.Int64N(int64(2*simTTL))))
	}
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.Int64N(int64(10 * simTTL))))
		_ = all[0].Close()
		w.Count("closed")
	}
	users.Wait()
	for _, p := range all {
		p.l.set(false, 0)
	}
	time.Sleep(11 * simTTL) // abandoned leases expire; answers have come
	last := newProcess(m, seed, 50, false)
	for _, key := range []string{"k0", "k1"} {
		l, _, err := last.Enter(context.Background(), distributed.Request{Key: key, Instance: "last", TTL: simTTL})
		if err != nil || l == nil {
			w.Failf("%s is not free in the end: %v", key, err)
			continue
		}
		_ = l.Release(context.Background())
	}
	synctest.Wait() // the goroutines whose answers have come know them
	for _, p := range append(all, last) {
		if !p.Closed() && !p.client.Idle() {
			w.Failf("a Backend is not idle in the end")
		}
		_ = p.Close()
		p.l.late.Wait()
	}
	if len(m.docs) > 0 {
		w.Failf("a document is left")
	}
	for _, wrong := range m.wrong {
		w.Failf("%s", wrong)
	}
}

// TestAnySchedule plays schedules with requests that are lost, late, repeated or refused, processes that fall silent, callers that leave,
// and a Close in the middle.
func TestAnySchedule(t *testing.T) {
	t.Parallel()
	judge.Play(t, 200, 200, play)
}

// TestManySchedules is the same with 2,000, or with WLLOCK_LONG=1 100,000.
func TestManySchedules(t *testing.T) {
	race.Skip(t, "TestAnySchedule is enough to find races")
	t.Parallel()
	judge.Play(t, 2000, 100_000, play)
}
