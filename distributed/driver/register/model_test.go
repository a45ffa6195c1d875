package register

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
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
	l    *link
	last bool
}

// Enter waits in the last process, which finds whether the locks are free in the end: where nothing is forgotten those of the dead are not
// before another has waited.
func (p process) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, place, err := p.Backend.Enter(ctx, req)
	if !p.last || place == nil || p.l.m.kind == forgets {
		return l, place, err
	}
	select {
	case l = <-place.Granted():
		return l, nil, nil
	case <-time.After(2 * simTTL):
		return nil, place, nil
	}
}

func id(x any) string { return driver.AttemptOf[wire](x).Wire.ID }

func newProcess(m *memory, seed1, seed2 uint64, faults bool) process {
	l, rnd := newLink(m, seed1, seed2, faults), testseed.Shared(seed1, seed2+1000)
	b := m.open(l)
	b.newID = func() string { return fmt.Sprintf("%016x", rnd.Uint64()) }
	b.below = func(most time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(most))) }
	return process{Backend: b, l: l}
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

// Calm implements judge.Player, as Idle.
func (p process) Calm() { p.l.set(false, 0) }

func (p process) Idle() bool { return p.client.Idle() }

// play plays a schedule, in which processes fall silent.
func play(w *judge.World, seed uint64) {
	m := newMemory(kinds[seed%uint64(len(kinds))])
	var opened []process
	open := func(n uint64) process {
		p := newProcess(m, seed, n, true)
		p.last = n == 50
		opened = append(opened, p)
		return p
	}
	judge.Schedule(w, seed, simTTL, open, func(rnd *rand.Rand, all []process) {
		for range rnd.IntN(4) {
			time.Sleep(time.Duration(rnd.Int64N(int64(5 * simTTL))))
			all[rnd.IntN(2)].l.set(true, time.Duration(rnd.Int64N(int64(2*simTTL))))
		}
	})
	for _, p := range opened {
		p.l.late.Wait()
	}
	for key := range m.docs {
		if !strings.HasPrefix(key, sessionKeys) && m.used(key) {
			w.Failf("a document is left")
		}
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
