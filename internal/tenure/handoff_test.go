package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// turns has n guests in a row, who stand in line from the start, and returns how many of them entered the backend.
func turns(t *testing.T, h *house, d *desk, n int, between func(i int)) int {
	t.Helper()
	guests := make([]*guest, n)
	for i := range guests {
		guests[i] = h.comes(exclusive)
	}
	before, _ := d.enters()
	for i, g := range guests {
		require.Equal(t, "in", g.state(), "guest %d", i)
		if i+1 < n {
			between(i)
		}
		require.True(t, g.goes())
	}
	total, _ := d.enters()
	return total - before + 1
}

func TestLeaseIsHandedOn(t *testing.T) {
	bubble(t, "from turn to turn, and given back when nobody waits", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		require.Equal(t, "in waiting", states(a, b))
		require.False(t, a.use.Handoff())
		a.goes()
		require.Equal(t, "in", states(b))
		require.True(t, b.use.Handoff())
		require.Same(t, a.use.Lease(), b.use.Lease())
		require.Equal(t, a.use.Fence()+1, b.use.Fence())
		require.Zero(t, d.paper(0).releases())
		require.True(t, b.goes())
		require.Equal(t, 1, d.paper(0).releases())
		require.False(t, h.inUse())
		h.closed()
	})
	bubble(t, "without limit while no other instance waits", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(2), longest(time.Millisecond))
		require.Equal(t, 1, turns(t, h, d, 200, func(int) { time.Sleep(time.Millisecond) }))
		h.closed()
	})
	bubble(t, "so often while another waits", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(3))
		assert.Equal(t, 1, turns(t, h, d, 4, func(int) { d.paper(0).set(func(p *paper) { p.wanted = true }) }))
		assert.Equal(t, 2, turns(t, h, d, 5, func(int) { d.paper(1).set(func(p *paper) { p.wanted = true }) }))
		h.closed()
	})
	bubble(t, "so long while another waits", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, longest(100*time.Millisecond))
		a, b, c := h.comes(exclusive), h.comes(exclusive), h.comes(exclusive)
		d.paper(0).want()
		time.Sleep(100*time.Millisecond - 1)
		a.goes()
		require.True(t, b.use.Handoff())
		time.Sleep(time.Nanosecond)
		b.goes()
		require.False(t, c.use.Handoff())
		c.goes()
		h.closed()
	})
	bubble(t, "and each lease has a budget of its own", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(2))
		wanted := func(int) { d.paper(len(d.papers) - 1).set(func(p *paper) { p.wanted = true }) }
		require.Equal(t, 3, turns(t, h, d, 9, wanted))
		a, b, c := h.comes(exclusive), h.comes(exclusive), h.comes(exclusive)
		wanted(0)
		time.Sleep(100 * time.Millisecond)
		a.goes()
		wanted(1)
		require.False(t, b.use.Handoff())
		b.goes()
		require.True(t, c.use.Handoff())
		c.goes()
		h.closed()
	})
	bubble(t, "not at all with MaxHandoffs 0", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		require.Equal(t, 5, turns(t, h, d, 5, func(int) {}))
		h.closed()
	})
	bubble(t, "not if it is not healthy", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		require.Equal(t, 2, turns(t, h, d, 3, func(i int) { d.paper(0).set(func(p *paper) { p.sick = true }) }))
		h.closed()
	})
	for name, left := range map[string]time.Duration{"with T/3 left": ttl / 3, "not with less than T/3 left": ttl/3 - 1} {
		bubble(t, name, func(t *testing.T) {
			d := new(desk)
			h := opened(t, d)
			n := turns(t, h, d, 2, func(int) { d.paper(0).set(func(p *paper) { p.until = time.Now().Add(left) }) })
			require.Equal(t, left == ttl/3, n == 1)
			h.closed()
		})
	}
}

// The lease that may not be handed on is named by the next Enter, so that one exchange does both.
func TestNextEnterNamesTheLease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		a, b := h.comes(exclusive), h.comes(exclusive)
		_, req := d.enters()
		require.Nil(t, req.Prev)
		require.Equal(t, distributed.Request{Key: key, Instance: "here", Mode: exclusive, TTL: ttl}, req)
		a.goes()
		_, req = d.enters()
		require.Same(t, d.paper(0), req.Prev)
		require.Zero(t, d.paper(0).releases(), "Enter has given it up")
		b.goes()
		require.Equal(t, 1, d.paper(1).releases())
		h.closed()
	})
}

func TestModes(t *testing.T) {
	bubble(t, "readers under an exclusive lease", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		w, r, s, v := h.comes(exclusive), h.comes(shared), h.comes(shared), h.comes(exclusive)
		w.goes()
		require.Equal(t, "out in in waiting", states(w, r, s, v))
		r.goes()
		s.goes()
		require.True(t, v.use.Handoff(), "and then a writer again")
		v.goes()
		n, _ := d.enters()
		require.Equal(t, 1, n)
		h.closed()
	})
	bubble(t, "no writer under a shared lease", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		r, w := h.comes(shared), h.comes(exclusive)
		r.goes()
		n, req := d.enters()
		require.Equal(t, "in", w.state())
		require.False(t, w.use.Handoff())
		require.Equal(t, 2, n)
		require.Equal(t, exclusive, req.Mode)
		require.Same(t, d.paper(0), req.Prev)
		w.goes()
		h.closed()
	})
}

func TestFences(t *testing.T) {
	empty := func(p *paper, refill func(context.Context) error) {
		p.set(func(p *paper) { p.fences, p.refill = 0, refill })
	}
	bubble(t, "are fetched when they have run out", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		p := d.paper(0)
		empty(p, func(context.Context) error { p.set(func(p *paper) { p.fences = 2 }); return nil })
		a.goes()
		require.Equal(t, "in", b.state())
		require.Equal(t, a.use.Fence()+1, b.use.Fence())
		b.goes()
		h.closed()
	})
	bubble(t, "are 0 if the backend has none", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		empty(d.paper(0), func(context.Context) error { return errors.ErrUnsupported })
		a.goes()
		require.Equal(t, "in", b.state())
		require.Zero(t, b.use.Fence())
		b.goes()
		h.closed()
	})
	bubble(t, "nobody goes in without; the lease stays for the next", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b, c := h.comes(exclusive), h.comes(exclusive), h.comes(exclusive)
		p := d.paper(0)
		empty(p, func(context.Context) error {
			refilled(p, 5)
			return distributed.ErrUnavailable
		})
		a.goes()
		require.Equal(t, "unavailable in", states(b, c))
		require.Same(t, p, c.use.Lease())
		c.goes()
		h.closed()
	})
	bubble(t, "if nobody is next the lease goes back", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		empty(d.paper(0), func(context.Context) error { return distributed.ErrUnavailable })
		a.goes()
		require.Equal(t, "unavailable", b.state())
		require.Equal(t, 1, d.paper(0).releases())
		h.closed()
	})
	bubble(t, "of a fresh lease, too, and the next may go to the backend", func(t *testing.T) {
		d, grant := new(desk), make(chan struct{})
		h := opened(t, d, handoffs(0))
		d.will(func(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			<-grant
			p := d.grant()
			empty(p, func(context.Context) error { return distributed.ErrUnavailable })
			return p, nil, nil
		})
		a, b := h.comes(exclusive), h.comes(exclusive)
		close(grant)
		synctest.Wait()
		require.Equal(t, "unavailable in", states(a, b))
		require.Same(t, d.paper(1), b.use.Lease())
		b.goes()
		h.closed()
	})
	bubble(t, "a lease that the backend disowns is as if it had never been", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		empty(d.paper(0), func(context.Context) error { return distributed.ErrLeaseLost })
		a.goes()
		_, req := d.enters()
		require.Equal(t, "in", b.state())
		require.Same(t, d.paper(1), b.use.Lease())
		require.Same(t, d.paper(0), req.Prev)
		b.goes()
		h.closed()
	})
	bubble(t, "a fresh one, too", func(t *testing.T) {
		d, asked := new(desk), 0
		h := opened(t, d)
		d.will(func(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			p := d.grant()
			empty(p, func(context.Context) error { asked++; return distributed.ErrLeaseLost })
			return p, nil, nil
		})
		a := h.comes(exclusive)
		require.Equal(t, "in", a.state())
		require.Same(t, d.paper(1), a.use.Lease())
		require.Equal(t, 1, asked, "once is enough")
		a.goes()
		h.closed()
	})
}

func refilled(p *paper, n int) { p.set(func(p *paper) { p.fences = n }) }

// The one who is let in looks again: what was true when the turn was passed on may be so no more when it wakes.
func TestReceiverChecksAgain(t *testing.T) {
	bubble(t, "the lease runs out while the fence is fetched", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		p := d.paper(0)
		p.set(func(p *paper) {
			p.fences, p.refill = 0, func(context.Context) error {
				time.Sleep(ttl)
				refilled(p, 1)
				return nil
			}
		})
		a.goes()
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, "in", b.state())
		require.Same(t, d.paper(1), b.use.Lease())
		b.goes()
		h.closed()
	})
	bubble(t, "the lease is lost while the fence is fetched", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		p := d.paper(0)
		p.set(func(p *paper) {
			p.fences, p.refill = 0, func(context.Context) error { p.lose(); refilled(p, 1); return nil }
		})
		a.goes()
		_, req := d.enters()
		require.Equal(t, "in", b.state())
		require.Nil(t, req.Prev, "what is lost is not given up")
		require.Zero(t, b.losses())
		b.goes()
		require.Zero(t, p.releases())
		h.closed()
	})
}

// A caller whose time is over when it gets the turn asks nobody for anything.
func TestTooLateToBegin(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		gone := h.guest(tenure.Ask{Mode: exclusive})
		gone.cancel()
		require.Equal(t, context.Canceled, gone.enter())
		late := h.guest(tenure.Ask{Mode: exclusive, Deadline: time.Now()})
		require.Equal(t, tenure.ErrTimeout, late.enter())
		h.group.Close()
		require.Equal(t, tenure.ErrClosed, h.guest(tenure.Ask{Mode: exclusive}).enter())
		require.Empty(t, d.asked)
		require.False(t, h.inUse())
		h.closed()
	})
}

// With a real backend: a partition makes the lease unhealthy long before it is over.
func TestUnhealthyInPartition(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		h := opened(t, backend)
		a, b, c := h.comes(exclusive), h.comes(exclusive), h.comes(exclusive)
		backend.Partition(true)
		time.Sleep(ttl / 3)
		require.False(t, distributed.Over(time.Now(), a.use.Lease().Until()))
		require.True(t, a.goes())
		require.Equal(t, "unavailable unavailable", states(b, c))
		backend.Partition(false)
		d := h.comesAs(tenure.Ask{Mode: exclusive})
		require.Equal(t, "in", d.state(), "the release was carried out when the partition healed")
		d.goes()
		h.closed()
	})
}

// grantsBare grants a lease without fences; the first refill fails, later ones bring fences.
func grantsBare(first error) answer {
	return func(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
		p := d.grant()
		tries := 0
		p.set(func(p *paper) {
			p.fences = 0
			p.refill = func(context.Context) error {
				if tries++; tries == 1 {
					return first
				}
				p.set(func(p *paper) { p.fences = 10 })
				return nil
			}
		})
		return p, nil, nil
	}
}

func TestFailedRefillOfAFreshLeaseIsNotNoFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		gate := make(chan struct{})
		d.will(after(gate, grantsBare(distributed.ErrUnavailable)))
		h := opened(t, d)
		a := h.comes(exclusive)
		b := h.comes(exclusive)
		close(gate)
		synctest.Wait()
		require.Equal(t, "unavailable in", states(a, b))
		require.NotZero(t, b.use.Fence(), "the backend has fences")
		b.goes()
		h.closed()
	})
}

func TestDeadlineCoversRefill(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		t.Run(fmt.Sprint("fresh ", fresh), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := new(desk)
				h := opened(t, d)
				slow := func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(2 * time.Second):
						return distributed.ErrUnavailable
					}
				}
				var first *guest
				if fresh {
					d.will(func(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
						p := d.grant()
						p.set(func(p *paper) { p.fences, p.refill = 0, slow })
						return p, nil, nil
					})
				} else {
					first = h.comes(exclusive)
				}
				begin := time.Now()
				g := h.guest(tenure.Ask{Mode: exclusive, Deadline: begin.Add(10 * time.Millisecond)})
				done := make(chan error, 1)
				go func() { done <- g.enter() }()
				synctest.Wait()
				if first != nil {
					d.paper(0).set(func(p *paper) { p.fences, p.refill = 0, slow })
					first.goes()
				}
				require.ErrorIs(t, <-done, tenure.ErrTimeout)
				require.Equal(t, 10*time.Millisecond, time.Since(begin))
				h.closed()
			})
		})
	}
}

// TestLateRenewalMeetsATenureUsedAgain: a term tells of its renewal after it has unlocked, and may be late.
func TestLateRenewalMeetsATenureUsedAgain(t *testing.T) {
	d := new(desk)
	h := opened(t, d, func(c *tenure.Config) { c.Renewed = func(any, error) {} })
	var wg sync.WaitGroup
	for i := range 2000 {
		g := h.guest(exclusively)
		k := fmt.Sprint("order:product:", i)
		require.NoError(t, h.queue.Enter(g.ctx, &g.turn, k, local.Ask{Limit: local.Unlimited}))
		g.tenure = g.turn.Baton()
		require.NoError(t, g.tenure.Begin(g.ctx, &g.use, exclusively))
		paper := g.use.Lease().(*paper)
		w := paper.watched()
		// Term.Renewed has looked at the state of the term, which is not finished, and is about to tell its watcher
		wg.Go(func() { w.(distributed.RenewalWatcher).LeaseRenewed(paper, time.Time{}, nil) })
		g.tenure.End(&g.use, time.Now())
		g.pass()
		g.cancel()
	}
	wg.Wait()
}
