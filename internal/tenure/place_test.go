package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
)

func TestPlaceIsGranted(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		a, b := h.comes(exclusive), h.comes(exclusive)
		require.Equal(t, "waiting waiting", states(a, b))
		d.slip(0).granted <- d.grant()
		synctest.Wait()
		require.Equal(t, "in waiting", states(a, b))
		require.False(t, a.use.Handoff())
		a.goes()
		require.True(t, b.use.Handoff())
		b.goes()
		require.Zero(t, d.slip(0).left(), "a place that was granted is none any more")
		n, _ := d.enters()
		require.Equal(t, 1, n)
		h.closed()
	})
}

// givingUp are the ways in which a caller's wait at the backend ends.
func givingUp(t *testing.T, test func(t *testing.T, h *house, d *desk, a *guest, end func() string)) {
	bubble(t, "canceled", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		a := h.comes(exclusive)
		test(t, h, d, a, func() string { a.givesUp(); return "canceled" })
	})
	bubble(t, "timed out", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		a := h.comesAs(tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Second)})
		test(t, h, d, a, func() string { time.Sleep(time.Second); synctest.Wait(); return "timeout" })
	})
}

func TestPlaceIsInherited(t *testing.T) {
	givingUp(t, func(t *testing.T, h *house, d *desk, a *guest, end func() string) {
		b := h.comes(exclusive)
		want := end()
		require.Equal(t, want+" waiting", states(a, b))
		d.slip(0).granted <- d.grant()
		synctest.Wait()
		require.Equal(t, "in", b.state())
		b.goes()
		n, _ := d.enters()
		require.Equal(t, 1, n, "it waited in the place of the first")
		require.Zero(t, d.slip(0).left())
		h.closed()
	})
}

func TestPlaceIsGivenUp(t *testing.T) {
	t.Run("when nobody waits", func(t *testing.T) {
		givingUp(t, func(t *testing.T, h *house, d *desk, a *guest, end func() string) {
			require.Equal(t, end(), a.state())
			require.Equal(t, 1, d.slip(0).left())
			require.False(t, h.inUse())
			h.closed()
		})
	})
	t.Run("to one of the other mode", func(t *testing.T) {
		givingUp(t, func(t *testing.T, h *house, d *desk, a *guest, end func() string) {
			b := h.comes(shared)
			end()
			require.Equal(t, 1, d.slip(0).left())
			require.Equal(t, "in", b.state())
			n, req := d.enters()
			require.Equal(t, 2, n)
			require.Equal(t, shared, req.Mode)
			b.goes()
			h.closed()
		})
	})
}

// The key is kept, and with it Close waits, until the backend has heard that a place is given up.
func TestLeavingAPlaceIsAwaited(t *testing.T) {
	for name, behind := range map[string]bool{"when nobody waits": false, "to one of the other mode": true} {
		bubble(t, name, func(t *testing.T) {
			d, answering := new(desk), make(chan struct{})
			h := opened(t, d)
			d.will(queues)
			a := h.comes(exclusive)
			d.slip(0).answering = answering
			var b *guest
			if behind {
				b = h.comes(shared)
			}
			a.givesUp()
			if behind {
				require.Equal(t, "in", b.state())
				b.goes()
			}
			h.shuts()
			require.Equal(t, 1, d.slip(0).left())
			require.True(t, h.inUse())
			require.False(t, h.drained())
			close(answering)
			synctest.Wait()
			require.False(t, h.inUse())
			h.closed()
			require.Empty(t, h.failures())
		})
	}
	bubble(t, "but not for ever", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		a := h.comes(exclusive)
		d.slip(0).answering = make(chan struct{})
		a.givesUp()
		time.Sleep(distributed.ClaimWindow(ttl) - 1)
		synctest.Wait()
		require.True(t, h.inUse())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.False(t, h.inUse())
		require.Equal(t, []error{context.DeadlineExceeded}, h.failures())
		h.closed()
	})
	bubble(t, "also with a lease that lingers, or is waited for", func(t *testing.T) {
		for name, end := range map[string]func(*guest){
			"lingers": func(g *guest) { g.goes(); g.use.Lease().(*paper).lose() },
			"waits":   func(g *guest) { _ = g.goesAndWaits(context.Background()) },
		} {
			d, answering := new(desk), make(chan struct{})
			h := opened(t, d, lingering(time.Second))
			d.will(queues)
			a, b := h.comes(exclusive), (*guest)(nil)
			d.slip(0).answering = answering
			b = h.comes(shared)
			a.givesUp()
			end(b)
			h.shuts()
			synctest.Wait()
			require.False(t, h.drained(), name)
			close(answering)
			h.closed()
		}
	})
}

// A grant that comes as its receiver goes lies in the place.
func TestGrantLyingInAPlace(t *testing.T) {
	bubble(t, "is inherited", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		a := h.comes(exclusive)
		b := h.comes(exclusive)
		a.cancel()
		d.slip(0).granted <- d.grant() // with a on its way out
		synctest.Wait()
		if a.state() == "in" { // the grant came first after all
			a.goes()
		}
		require.Equal(t, "in", b.state())
		b.goes()
		n, _ := d.enters()
		require.Equal(t, 1, n)
		require.Equal(t, 1, d.paper(0).releases())
		h.closed()
	})
	bubble(t, "is given back with it", func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		here, there := opened(t, backend), opened(t, backend, named("there"))
		a := there.comes(exclusive)
		b := here.comes(exclusive)
		require.Equal(t, "in waiting", states(a, b))
		b.cancel()
		a.goes() // to b, on its way out
		if b.state() == "in" {
			b.goes()
		}
		c := there.comes(exclusive)
		require.Equal(t, "in", c.state(), "the lock is free")
		c.goes()
		here.closed()
		there.closed()
	})
	bubble(t, "serves one who does not want to wait, else it is held", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		at, ctx := h.group.New(key, nil), t.Context()
		var use tenure.Use
		now := tenure.Ask{Mode: exclusive, NoWait: true}
		soon := tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Second)}
		require.Equal(t, tenure.ErrTimeout, at.Begin(ctx, &use, soon))
		require.Equal(t, distributed.ErrHeld, at.Begin(ctx, &use, now))
		d.slip(0).granted <- d.grant()
		require.NoError(t, at.Begin(ctx, &use, now))
		require.Same(t, d.paper(0), use.Lease())
		h.closed()
	})
}

func TestLostPlaceEntersAgain(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		d.will(grants, queues, queues, grants)
		first, a := h.comes(exclusive), h.comes(exclusive)
		first.goes()
		_, req := d.enters()
		require.Same(t, d.paper(0), req.Prev)
		close(d.slip(0).granted)
		synctest.Wait()
		n, req := d.enters()
		require.Equal(t, 3, n)
		require.Nil(t, req.Prev, "what was given up is not named again")
		require.Equal(t, "waiting", a.state())
		close(d.slip(1).granted)
		synctest.Wait()
		require.Equal(t, "in", a.state())
		a.goes()
		require.Zero(t, d.slip(0).left()+d.slip(1).left())
		h.closed()
	})
}

func TestLostPlaceIsForgotten(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues, fails(distributed.ErrUnavailable))
		a := h.comes(exclusive)
		close(d.slip(0).granted)
		synctest.Wait()
		require.Equal(t, "unavailable", a.state())
		require.Zero(t, d.slip(0).left(), "there is nothing to give up")
		h.closed()
	})
}

func TestEnterEnds(t *testing.T) {
	bubble(t, "at the deadline", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(hangs)
		start := time.Now()
		g := h.guest(tenure.Ask{Mode: exclusive, Deadline: start.Add(time.Second)})
		err := g.enter()
		require.ErrorIs(t, err, tenure.ErrTimeout)
		require.ErrorIs(t, err, distributed.ErrUnavailable, "nothing was answered")
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "with the caller", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(hangs)
		a, b := h.comes(exclusive), h.comes(exclusive)
		a.givesUp()
		require.Equal(t, "in", b.state())
		b.goes()
		h.closed()
	})
	bubble(t, "at once for one who does not want to wait", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(fails(distributed.ErrHeld))
		a := h.comesAs(tenure.Ask{Mode: exclusive, NoWait: true})
		_, req := d.enters()
		require.True(t, req.NoWait)
		require.Equal(t, "held", a.state())
		require.False(t, h.inUse())
		h.closed()
	})
}
