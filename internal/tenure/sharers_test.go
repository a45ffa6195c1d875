package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
)

// stuck lets a sharer come in beside another and get as far as the fetching of its fence, which ends with let.
func stuck(h *house, p *paper, let <-chan struct{}, end error) *guest {
	p.set(func(p *paper) {
		left := p.fences
		p.fences, p.refill = 0, func(context.Context) error {
			<-let
			refilled(p, left)
			return end
		}
	})
	g := h.comes(shared)
	p.set(func(p *paper) { p.fences = 1000 }) // nobody else is held up
	return g
}

func TestSharersUseOneLease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b, c := h.comes(shared), h.comes(shared), h.comes(shared)
		require.Equal(t, "in in in", states(a, b, c))
		a.goes()
		b.goes()
		require.Zero(t, d.paper(0).releases())
		c.goes()
		n, _ := d.enters()
		require.Equal(t, 1, n)
		require.Equal(t, 1, d.paper(0).releases())
		h.closed()
	})
	bubble(t, "with MaxHandoffs 0, too, while no other instance waits", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		a, b := h.comes(shared), h.comes(shared)
		require.Equal(t, "in in", states(a, b))
		d.paper(0).want()
		c := h.comes(shared)
		require.Equal(t, "waiting", c.state())
		a.goes()
		b.goes()
		require.Equal(t, "in", c.state())
		c.goes()
		h.closed()
	})
}

// A lease that may take no more sharers is drained: late ones wait until those inside have left.
func TestDrain(t *testing.T) {
	bubble(t, "then one of them enters for all", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(1))
		a, b := h.comes(shared), h.comes(shared)
		d.paper(0).want()
		c, e, w := h.comes(shared), h.comes(shared), h.comes(exclusive)
		require.Equal(t, "in in waiting waiting waiting", states(a, b, c, e, w))
		a.goes()
		require.Equal(t, "waiting", c.state())
		b.goes()
		require.Equal(t, "in in waiting", states(c, e, w))
		_, req := d.enters()
		require.Same(t, d.paper(0), req.Prev)
		require.Same(t, c.use.Lease(), e.use.Lease())
		c.goes()
		e.goes()
		w.goes()
		h.closed()
	})
	bubble(t, "who does not want to wait is refused", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		a := h.comes(shared)
		d.paper(0).want()
		require.Equal(t, "busy", h.comesAs(tenure.Ask{Mode: shared, NoWait: true}).state())
		a.goes()
		h.closed()
	})
}

// Sharers begin side by side. Their lease can be lost or spent meanwhile; then one of them goes to the backend, and the
// others wait for that one.
func TestOneSharerAtATimeIsAtTheBackend(t *testing.T) {
	bubble(t, "after the lease was lost", func(t *testing.T) {
		d, let, grant := new(desk), make(chan struct{}), make(chan struct{})
		h := opened(t, d)
		a := h.comes(shared)
		b := stuck(h, d.paper(0), let, nil)
		c := stuck(h, d.paper(0), let, nil)
		d.will(after(grant, grants))
		d.paper(0).lose()
		close(let)
		synctest.Wait()
		e := h.comes(shared)
		require.Equal(t, "lost waiting waiting waiting", states(a, b, c, e))
		close(grant)
		synctest.Wait()
		require.Equal(t, "in in in", states(b, c, e))
		n, _ := d.enters()
		require.Equal(t, 2, n)
		require.Equal(t, 1, d.together())
		for _, g := range []*guest{b, c, e} {
			require.Same(t, d.paper(1), g.use.Lease())
			g.goes()
		}
		require.Equal(t, 1, d.paper(1).releases())
		h.closed()
	})
	bubble(t, "when that one fails, the next goes", func(t *testing.T) {
		d, let, answer := new(desk), make(chan struct{}), make(chan struct{})
		h := opened(t, d)
		h.comes(shared)
		b := stuck(h, d.paper(0), let, nil)
		c := stuck(h, d.paper(0), let, nil)
		d.will(after(answer, fails(distributed.ErrUnavailable)), grants)
		d.paper(0).lose()
		close(let)
		synctest.Wait()
		close(answer)
		synctest.Wait()
		in := []*guest{b, c}
		if c.state() == "unavailable" {
			in = []*guest{c, b}
		}
		require.Equal(t, "unavailable in", states(in...))
		in[1].goes()
		h.closed()
	})
	bubble(t, "and a lease that nobody got in under is watched before another retires it", func(t *testing.T) {
		d, first, second := new(desk), make(chan struct{}), make(chan struct{})
		h := opened(t, d, handoffs(0))
		h.comes(shared)
		b, c := stuck(h, d.paper(0), first, nil), stuck(h, d.paper(0), second, nil)
		unfenced := func(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			p := d.grant()
			p.set(func(p *paper) {
				p.fences, p.refill = 0, func(context.Context) error { return distributed.ErrUnavailable }
				p.watching = func() { close(second); time.Sleep(time.Millisecond) } // c looks meanwhile
			})
			return p, nil, nil
		}
		d.will(unfenced, fails(distributed.ErrUnavailable))
		d.paper(0).lose()
		close(first)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, "unavailable unavailable", states(b, c))
		require.Equal(t, 1, d.paper(1).releases())
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "and retires no lease under which another has come in", func(t *testing.T) {
		d, let := new(desk), make(chan struct{})
		h := opened(t, d, handoffs(1))
		a := h.comes(shared)
		b := stuck(h, d.paper(0), let, nil) // it fetches fences for the lease
		d.paper(0).want()
		a.goes()
		c := h.comes(shared) // it finds one, and is the last that the lease may serve
		require.Equal(t, "waiting in", states(b, c))
		close(let)
		synctest.Wait()
		require.Equal(t, "waiting", b.state())
		require.Same(t, d.paper(0), c.use.Lease())
		c.goes()
		require.Equal(t, "in", b.state())
		require.Same(t, d.paper(1), b.use.Lease())
		b.goes()
		h.closed()
	})
}

// Sharers that ask at the same moment count when they are let in, one by one, so they cannot exceed the budget together.
func TestSharersKeepToTheBudget(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, let := new(desk), make(chan struct{})
		h := opened(t, d, handoffs(2))
		a := h.comes(shared)
		d.paper(0).want()
		b, c := stuck(h, d.paper(0), let, nil), stuck(h, d.paper(0), let, nil)
		e := h.comes(shared)
		require.Equal(t, "in waiting waiting in", states(a, b, c, e))
		close(let)
		synctest.Wait()
		if b.state() == "waiting" {
			b, c = c, b
		}
		require.Equal(t, "in in waiting in", states(a, b, c, e))
		a.goes()
		b.goes()
		e.goes()
		require.Equal(t, "in", c.state())
		c.goes()
		h.closed()
	})
}

// A shared lease that the backend disowns, to one who fetches a fence, takes nobody further; those inside learn of it
// when it is lost.
func TestDisownedSharedLeaseIsDrained(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, let := new(desk), make(chan struct{})
		h := opened(t, d)
		a := h.comes(shared)
		b := stuck(h, d.paper(0), let, distributed.ErrLeaseLost)
		close(let)
		synctest.Wait()
		require.Equal(t, "in waiting waiting", states(a, b, h.comes(shared)))
		time.Sleep(time.Millisecond)
		d.paper(0).lose()
		synctest.Wait()
		require.Equal(t, "lost in", states(a, b))
		require.Same(t, d.paper(1), b.use.Lease())
	})
}
