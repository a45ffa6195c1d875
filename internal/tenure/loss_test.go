package tenure_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
)

func TestLeaseIsLost(t *testing.T) {
	bubble(t, "all who work under it learn of it, and the next goes on", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b, w := h.comes(shared), h.comes(shared), h.comes(exclusive)
		d.paper(0).lose()
		synctest.Wait()
		require.Equal(t, "lost lost in", states(a, b, w))
		require.Equal(t, []int{1, 1, 0}, []int{a.losses(), b.losses(), w.losses()})
		require.False(t, a.goes(), "late, and it changes nothing")
		require.Equal(t, "in", w.state())
		_, req := d.enters()
		require.Nil(t, req.Prev)
		w.goes()
		require.Zero(t, d.paper(0).releases(), "what is lost is not given back")
		h.closed()
	})
	bubble(t, "by the clocks, before anybody was told", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		time.Sleep(ttl)
		require.False(t, a.goes(), "not kept")
		require.Equal(t, "in", b.state())
		require.NotSame(t, d.paper(0), b.use.Lease())
		b.goes()
		h.closed()
	})
	bubble(t, "a later lease is not taken for it", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		a, b := h.comes(exclusive), h.comes(exclusive)
		a.goes()
		d.paper(0).lose()
		require.Equal(t, "in", b.state())
		require.True(t, b.goes())
		h.closed()
	})
	bubble(t, "with memlock: forgotten by the server, noticed by the renewal", func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		h := opened(t, backend)
		a, b := h.comes(exclusive), h.comes(exclusive)
		backend.Expire(key)
		require.Equal(t, "in waiting", states(a, b))
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, "lost in", states(a, b))
		require.Greater(t, b.use.Fence(), a.use.Fence())
		b.goes()
		h.closed()
	})
}

// Of the race between the loss of a lease and the end of a stay there is one winner for each caller, and the turn is
// passed on once.
func TestLossMeetsEnd(t *testing.T) {
	for range 1000 {
		d := new(desk)
		h := opened(t, d)
		var ended atomic.Int32
		guests := make([]*guest, 3)
		for i := range guests {
			guests[i] = h.guest(tenure.Ask{Mode: shared})
			require.NoError(t, guests[i].enter())
		}
		var all sync.WaitGroup
		for _, g := range guests {
			all.Go(func() {
				if in, _ := g.tenure.End(&g.use, time.Now()); in {
					ended.Add(1)
					g.pass()
				}
			})
		}
		all.Go(d.paper(0).lose)
		all.Wait()
		lost := 0
		for _, g := range guests {
			require.LessOrEqual(t, g.losses(), 1)
			lost += g.losses()
		}
		require.Equal(t, len(guests), lost+int(ended.Load()))
		require.False(t, h.inUse())
		h.group.Stop()
	}
}

func TestOverstay(t *testing.T) {
	bubble(t, "alone: the lease is kept no more, and handed to nobody", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		a.tenure.Overstay(&a.use)
		require.True(t, d.paper(0).left())
		require.True(t, a.goes(), "in time, after all")
		require.Equal(t, "in", b.state())
		require.Same(t, d.paper(1), b.use.Lease())
		b.goes()
		h.closed()
	})
	bubble(t, "among sharers: kept until all have", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(shared), h.comes(shared)
		a.tenure.Overstay(&a.use)
		a.tenure.Overstay(&a.use)
		require.False(t, d.paper(0).left())
		late := h.comes(shared)
		require.Equal(t, "waiting", late.state(), "it takes no others")
		b.tenure.Overstay(&b.use)
		require.True(t, d.paper(0).left())
		d.paper(0).lose()
		synctest.Wait()
		require.Equal(t, "lost lost in", states(a, b, late))
		late.goes()
		h.closed()
	})
	bubble(t, "among sharers: the others leave", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b, c := h.comes(shared), h.comes(shared), h.comes(shared)
		a.tenure.Overstay(&a.use)
		b.goes()
		require.False(t, d.paper(0).left())
		c.goes()
		require.True(t, d.paper(0).left())
		a.goes()
		h.closed()
	})
	bubble(t, "among sharers: one that did leaves, the lease is kept for the other", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(shared), h.comes(shared)
		a.tenure.Overstay(&a.use)
		a.goes()
		require.False(t, d.paper(0).left())
		b.tenure.Overstay(&b.use)
		require.True(t, d.paper(0).left())
		b.goes()
		h.closed()
	})
	bubble(t, "no sharer comes in that was on its way", func(t *testing.T) {
		d, let := new(desk), make(chan struct{})
		h := opened(t, d)
		a := h.comes(shared)
		b := stuck(h, d.paper(0), let, nil)
		a.tenure.Overstay(&a.use)
		close(let)
		synctest.Wait()
		require.Equal(t, "in waiting", states(a, b))
		a.goes()
		require.Equal(t, "in", b.state())
		require.Same(t, d.paper(1), b.use.Lease())
		b.goes()
		h.closed()
	})
	bubble(t, "after the end it means nothing", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(exclusive), h.comes(exclusive)
		a.goes()
		a.tenure.Overstay(&a.use)
		require.False(t, d.paper(0).left())
		b.goes()
		h.closed()
	})
	bubble(t, "with memlock: the turn is taken when the lease is over", func(t *testing.T) {
		backend := memlock.New()
		defer backend.Close()
		h := opened(t, backend)
		a, b := h.comes(exclusive), h.comes(exclusive)
		time.Sleep(2 * ttl)
		require.Equal(t, "in waiting", states(a, b), "it is renewed")
		a.tenure.Overstay(&a.use)
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, "lost in", states(a, b))
		b.goes()
		h.closed()
	})
}

func TestAbandon(t *testing.T) {
	bubble(t, "tells all who work under the lease, and ends its keeping", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d)
		a, b := h.comes(shared), h.comes(shared)
		told := map[tenure.Owner]int{}
		a.tenure.Abandon(func(o tenure.Owner) { told[o]++ })
		require.Equal(t, map[tenure.Owner]int{a: 1, b: 1}, told)
		require.True(t, d.paper(0).left())
		require.Equal(t, "waiting", h.comes(shared).state())
		require.True(t, a.goes())
		require.True(t, b.goes())
	})
	bubble(t, "of a key that nobody works for tells nobody", func(t *testing.T) {
		h := opened(t, new(desk))
		h.group.New(key, nil).Abandon(func(tenure.Owner) { t.Error("told") })
	})
	bubble(t, "nobody comes in afterwards who was at the backend", func(t *testing.T) {
		d, grant := new(desk), make(chan struct{})
		h := opened(t, d)
		d.will(after(grant, grants))
		a := h.comes(exclusive)
		h.shuts()
		h.queue.Each(func(_ string, at *tenure.Tenure, _ int) {
			go at.Abandon(func(tenure.Owner) { t.Error("told") })
		})
		synctest.Wait()
		close(grant)
		synctest.Wait()
		require.Equal(t, "closed", a.state())
		require.Equal(t, 1, d.paper(0).releases(), "a late grant is given back")
		h.closed()
	})
}

// plain hides that a lease can call back.
type plain struct{ distributed.Lease }

// A lease that cannot call back has a goroutine to watch it, which ends with the lease, however that ends.
func TestPlainLeases(t *testing.T) {
	plainly := func(d *desk, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
		return plain{d.grant()}, nil, nil
	}
	bubble(t, "given up by an Enter, released, lost", func(t *testing.T) {
		d := new(desk)
		h := opened(t, d, handoffs(0))
		d.will(plainly, plainly, plainly)
		a, b := h.comes(exclusive), h.comes(exclusive)
		a.goes()
		_, req := d.enters()
		require.Equal(t, plain{d.paper(0)}, req.Prev, "the backend is given its own lease")
		b.goes()
		require.Equal(t, 1, d.paper(1).releases())
		c := h.comes(exclusive)
		close(d.paper(2).lost)
		synctest.Wait()
		require.Equal(t, "lost", c.state())
		h.closed() // the bubble sees a goroutine that is left
	})
}
