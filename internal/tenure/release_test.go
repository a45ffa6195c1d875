package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// slowly makes the answer to the release of p wait for the channel it returns.
func slowly(p *paper, answer error) chan struct{} {
	c := make(chan struct{})
	p.set(func(p *paper) { p.answering, p.answer = c, answer })
	return c
}

func TestReleaseGoesOnInTheBackground(t *testing.T) {
	bubble(t, "the key is kept until it is answered, and Close waits", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a := h.comes(exclusive)
		answer := slowly(d.paper(0), nil)
		require.True(t, a.goes())
		require.Equal(t, 1, d.paper(0).releases())
		h.shuts()
		require.True(t, h.inUse())
		require.False(t, h.drained())
		close(answer)
		h.closed()
		require.Empty(t, h.failures())
	})
	bubble(t, "the next Enter names it, and then it is answered", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a := h.comes(exclusive)
		answer := slowly(d.paper(0), nil)
		a.goes()
		b := h.comes(exclusive)
		_, req := d.enters()
		require.Same(t, d.paper(0), req.Prev)
		b.goes()
		require.False(t, h.inUse(), "the answer of the Enter counts")
		c := h.comes(exclusive)
		_, req = d.enters()
		require.Nil(t, req.Prev)
		close(answer) // late
		synctest.Wait()
		require.Equal(t, "in", c.state())
		c.goes()
		h.closed()
	})
	bubble(t, "after an Enter of unknown outcome it is released, once", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		a, b, c := h.comes(exclusive), h.comes(exclusive), h.comes(exclusive)
		answer := slowly(d.paper(0), nil)
		d.will(fails(distributed.ErrUnavailable), fails(distributed.ErrUnavailable))
		a.goes()
		require.Equal(t, "unavailable unavailable", states(b, c))
		n, req := d.enters()
		require.Equal(t, 3, n)
		require.Same(t, d.paper(0), req.Prev, "named until it is answered")
		require.Equal(t, 1, d.paper(0).releases())
		require.True(t, h.inUse())
		close(answer)
		synctest.Wait()
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "after ErrHeld it has been given up", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		a, b, c := h.comes(exclusive), h.comes(exclusive), h.comes(exclusive)
		d.will(fails(distributed.ErrHeld), grants)
		a.goes()
		_, req := d.enters()
		require.Equal(t, "held in", states(b, c))
		require.Nil(t, req.Prev)
		require.Zero(t, d.paper(0).releases())
		c.goes()
		h.closed()
	})
	bubble(t, "a failure is told, and keeps nothing", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a := h.comes(exclusive)
		d.paper(0).set(func(p *paper) { p.answer = distributed.ErrUnavailable })
		a.goes()
		require.Equal(t, []error{distributed.ErrUnavailable}, h.failures())
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "a lease that is lost meanwhile is not waited for", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a := h.comes(exclusive)
		answer := slowly(d.paper(0), distributed.ErrLeaseLost)
		a.goes()
		d.paper(0).lose()
		require.False(t, h.inUse())
		h.closed()
		close(answer)
		synctest.Wait()
	})
}

func TestGiveUpAndWait(t *testing.T) {
	bubble(t, "returns the backend's answer when it is there", func(t *testing.T) {
		for _, answer := range []error{nil, distributed.ErrUnavailable} {
			d := new(desk)
			h := opened(t, d)
			a := h.comes(exclusive)
			answering := slowly(d.paper(0), answer)
			start := time.Now()
			time.AfterFunc(time.Second, func() { close(answering) })
			require.Equal(t, answer, a.goesAndWaits(context.Background()))
			require.Equal(t, time.Second, time.Since(start))
			require.Equal(t, 1, d.paper(0).releases())
			require.False(t, h.inUse())
			h.closed()
		}
	})
	bubble(t, "or the end of ctx", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a := h.comes(exclusive)
		slowly(d.paper(0), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, a.goesAndWaits(ctx))
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "the next caller does not wait for it", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a := h.comes(exclusive)
		answer := slowly(d.paper(0), nil)
		go a.goesAndWaits(context.Background())
		synctest.Wait()
		b := h.comes(exclusive)
		_, req := d.enters()
		require.Equal(t, "in", b.state())
		require.Same(t, d.paper(0), req.Prev)
		close(answer)
		synctest.Wait()
		require.Equal(t, "in", b.state())
		b.goes()
		h.closed()
	})
	bubble(t, "is nothing when another took the lease over, or it is lost", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		require.NoError(t, a.goesAndWaits(t.Context()))
		synctest.Wait()
		require.Equal(t, "in", b.state())
		b.tenure.End(&b.use, time.Now())
		d.paper(0).lose()
		b.turn.Pass()
		require.NoError(t, b.tenure.GiveUpAndWait(t.Context(), &b.turn))
		require.Zero(t, d.paper(0).releases())
		h.closed()
	})
}

func TestClose(t *testing.T) {
	bubble(t, "sends one away that waits at the backend, and its place goes back", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		d.will(queues)
		a, b := h.comes(exclusive), h.comes(exclusive)
		h.shuts()
		synctest.Wait()
		require.Equal(t, "closed local closed", states(a, b))
		require.Equal(t, 1, d.slip(0).left())
		h.closed()
	})
	bubble(t, "lets those inside finish", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, lingering(time.Second))
		a := h.comes(exclusive)
		h.shuts()
		require.False(t, h.drained())
		require.True(t, a.goes())
		require.Equal(t, 1, d.paper(0).releases())
		h.closed()
	})
	bubble(t, "repeated it does nothing", func(t *testing.T) {
		h := opened(t, new(desk))
		h.closed()
		h.closed()
	})
}
