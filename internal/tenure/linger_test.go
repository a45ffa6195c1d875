package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/memlock"
)

const linger = time.Second

// idle returns a house whose lease lingers.
func idle(t *testing.T, opts ...option) (*house, *desk) {
	d := new(desk)
	h := opened(t, d, append([]option{lingering(linger)}, opts...)...)
	h.comes(exclusive).goes()
	require.Zero(t, d.paper(0).releases())
	require.True(t, h.inUse())
	return h, d
}

func TestLinger(t *testing.T) {
	bubble(t, "the next caller finds the lease", func(t *testing.T) {
		h, d := idle(t)
		time.Sleep(linger - 1)
		a := h.comes(exclusive)
		require.True(t, a.use.Handoff())
		require.False(t, a.tenure.Snapshot().Lingering)
		time.Sleep(linger)
		require.Zero(t, d.paper(0).releases(), "it is in use")
		a.goes()
		time.Sleep(linger - 1)
		synctest.Wait()
		require.Zero(t, d.paper(0).releases(), "it lingers anew")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 1, d.paper(0).releases())
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "it goes back when another instance wants it", func(t *testing.T) {
		h, d := idle(t)
		d.paper(0).want()
		synctest.Wait()
		require.Equal(t, 1, d.paper(0).releases())
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "the key is kept until that is answered, and no longer", func(t *testing.T) {
		h, d := idle(t)
		answer := slowly(d.paper(0), nil)
		d.paper(0).want()
		synctest.Wait()
		require.True(t, h.inUse())
		close(answer)
		synctest.Wait()
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "it goes back on Close", func(t *testing.T) {
		h, d := idle(t)
		h.closed()
		require.Equal(t, 1, d.paper(0).releases())
	})
	bubble(t, "it does not linger after Close, nor if wanted, unfit or awaited", func(t *testing.T) {
		for name, before := range map[string]func(h *house, p *paper){
			"closed":    func(h *house, p *paper) { h.group.Close() },
			"wanted":    func(h *house, p *paper) { p.want() },
			"unhealthy": func(h *house, p *paper) { p.set(func(p *paper) { p.sick = true }) },
			"short":     func(h *house, p *paper) { p.set(func(p *paper) { p.until = time.Now().Add(ttl/3 - 1) }) },
		} {
			d := new(desk)
			h := opened(t, d, lingering(linger))
			a := h.comes(exclusive)
			before(h, d.paper(0))
			a.goes()
			require.Equal(t, 1, d.paper(0).releases(), name)
			h.closed()
		}
		d := new(desk)
		h := opened(t, d, lingering(linger))
		require.NoError(t, h.comes(exclusive).goesAndWaits(context.Background()))
		require.Equal(t, 1, d.paper(0).releases())
		h.closed()
	})
	bubble(t, "a lease that is lost lingers no more", func(t *testing.T) {
		h, d := idle(t)
		d.paper(0).lose()
		require.False(t, h.inUse())
		time.Sleep(linger)
		h.closed()
		require.Zero(t, d.paper(0).releases())
	})
	bubble(t, "one that does not serve is given up by the next caller", func(t *testing.T) {
		h, d := idle(t)
		d.paper(0).set(func(p *paper) { p.sick = true })
		a := h.comes(exclusive)
		_, req := d.enters()
		require.Same(t, d.paper(0), req.Prev)
		time.Sleep(linger) // its timer must not touch the later lease
		synctest.Wait()
		require.Equal(t, "in", a.state())
		a.goes()
		h.closed()
	})
	bubble(t, "a caller that does not get in leaves it lingering, anew", func(t *testing.T) {
		h, d := idle(t)
		time.Sleep(linger / 2)
		g := h.guest(exclusively)
		g.cancel()
		require.Equal(t, context.Canceled, g.enter())
		time.Sleep(linger - 1)
		synctest.Wait()
		require.Zero(t, d.paper(0).releases())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 1, d.paper(0).releases())
		require.False(t, h.inUse(), "it was pinned once")
		h.closed()
	})
}

// seat lets the test have the turn in the middle of Release.
type seat struct {
	*guest
	before func()
}

func (s *seat) Baton() *tenureOf { return s.turn.Baton() }
func (s *seat) Pin()             { s.turn.Pin() }
func (s *seat) Leave() bool      { s.before(); return s.turn.Leave() }

// What would end the lingering can come when the lease lingers already and the turn is still held. Then nobody can get
// at it but the one who has the turn.
func TestLingerEndsWhileTheTurnIsHeld(t *testing.T) {
	for name, end := range map[string]func(h *house, p *paper){
		"wanted": func(h *house, p *paper) { p.want() },
		"closed": func(h *house, p *paper) { h.shuts() },
	} {
		bubble(t, name, func(t *testing.T) {
			d := new(desk)
			h := opened(t, d, lingering(linger))
			a := h.comes(exclusive)
			a.tenure.End(&a.use, time.Now())
			a.turn.Pass()
			a.tenure.Release(&seat{a, func() { end(h, d.paper(0)) }})
			require.Equal(t, 1, d.paper(0).releases())
			require.False(t, h.inUse())
			h.closed()
		})
	}
}

// An end that comes late finds another tenure of the key, and must not keep that one's end from happening.
func TestLateEndOfLingering(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		h, d := idle(t)
		var old *tenureOf
		h.queue.Each(func(_ string, of *tenureOf, _ int) { old = of })
		h.meanwhile = func() { // the old one's end has begun, and before it has the turn, its lease is lost
			h.meanwhile = nil
			d.paper(0).lose()
			require.False(t, h.inUse())
			h.comes(exclusive).goes()
			require.True(t, h.inUse(), "a later tenure lingers")
			h.hold = func() { d.paper(1).want() } // and is wanted while the old one has the turn
		}
		old.EndLinger()
		require.Equal(t, 1, d.paper(1).releases())
		require.False(t, h.inUse())
		h.closed()
	})
}

// The state of a key is used again for others, but not if a timer may still come late for the key it was of.
func TestStateIsUsedAgain(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		h := opened(t, new(desk), lingering(linger))
		plain, lingered := h.group.New(key, nil), (*tenureOf)(nil)
		require.Same(t, plain, h.group.New("other", plain))
		a := h.comes(exclusive)
		lingered = a.tenure
		a.goes()
		time.Sleep(linger)
		synctest.Wait()
		require.False(t, h.inUse())
		require.NotSame(t, lingered, h.group.New("other", lingered))
		h.closed()
	})
}

func TestLingerWithMemlock(t *testing.T) {
	bubble(t, "an idle lease is renewed, and handed to another instance at once", func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		here, there := opened(t, backend, lingering(10*ttl)), opened(t, backend, named("there"))
		a := here.comes(exclusive)
		a.goes()
		time.Sleep(3 * ttl)
		b := here.comes(exclusive)
		require.Same(t, a.use.Lease(), b.use.Lease())
		b.goes()
		time.Sleep(3 * ttl)
		start := time.Now()
		c := there.comes(exclusive)
		require.Equal(t, "in", c.state())
		require.Zero(t, time.Since(start))
		c.goes()
		here.closed()
		there.closed()
	})
}
