package tenure_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/tenure"
)

func TestLeaseIsLost(t *testing.T) {
	over(t, "all its users are notified, and the next caller goes on", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, w := f.arrive(shared), f.arrive(shared), f.arrive(exclusive)
		fb.lease(0).lose()
		synctest.Wait()
		require.Equal(t, "lost lost in", states(a, b, w))
		require.Equal(t, []int{1, 1, 0}, []int{a.losses(), b.losses(), w.losses()})
		require.False(t, a.leave(), "too late, and without effect")
		require.Equal(t, "in", w.state())
		require.Nil(t, fb.last().Prev)
		w.leave()
		require.Zero(t, fb.lease(0).releases(), "a lost lease is not released")
	})
	over(t, "by the clocks, before any notification", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		time.Sleep(ttl)
		require.False(t, a.leave(), "not kept")
		require.Equal(t, "in", b.state())
		require.NotSame(t, fb.lease(0), b.use.Lease())
	})
	with(handoffs(0)).over(t, "a late loss does not end a later lease", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		a.leave()
		fb.lease(0).lose()
		require.Equal(t, "in", b.state())
		require.True(t, b.leave())
	})
}

// The race between the loss of a lease and the end of its use has one winner for each caller, and the turn is passed once.
func TestLossMeetsEnd(t *testing.T) {
	for range 1000 {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		var ended atomic.Int32
		callers := make([]*caller, 3)
		for i := range callers {
			callers[i] = f.newCaller(tenure.Ask{Mode: shared})
			require.NoError(t, callers[i].enter())
		}
		var all sync.WaitGroup
		for _, c := range callers {
			all.Go(func() {
				if in, _ := c.tenure.End(&c.use, time.Now()); in {
					ended.Add(1)
					c.pass()
				}
			})
		}
		all.Go(fb.lease(0).lose)
		all.Wait()
		lost := 0
		for _, c := range callers {
			require.LessOrEqual(t, c.losses(), 1)
			lost += c.losses()
		}
		require.Equal(t, len(callers), lost+int(ended.Load()))
		require.False(t, f.inUse())
		f.group.Stop()
	}
}

func TestOverstay(t *testing.T) {
	over(t, "alone: the lease is abandoned, and not handed on", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		a.tenure.Overstay(&a.use)
		require.True(t, fb.lease(0).wasAbandoned())
		require.True(t, a.leave(), "in time after all")
		f.requireUnder(fb.lease(1), b)
	})
	over(t, "among sharers: abandoned when all have overstayed", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(shared), f.arrive(shared)
		a.tenure.Overstay(&a.use)
		a.tenure.Overstay(&a.use)
		require.False(t, fb.lease(0).wasAbandoned())
		late := f.arrive(shared)
		require.Equal(t, "waiting", late.state(), "it admits no others")
		b.tenure.Overstay(&b.use)
		require.True(t, fb.lease(0).wasAbandoned())
		fb.lease(0).lose()
		synctest.Wait()
		require.Equal(t, "lost lost in", states(a, b, late))
	})
	over(t, "among sharers: abandoned when the others have left", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, c := f.arrive(shared), f.arrive(shared), f.arrive(shared)
		a.tenure.Overstay(&a.use)
		b.leave()
		require.False(t, fb.lease(0).wasAbandoned())
		c.leave()
		require.True(t, fb.lease(0).wasAbandoned())
	})
	over(t, "among sharers: kept for the others when the one that overstayed leaves", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(shared), f.arrive(shared)
		a.tenure.Overstay(&a.use)
		a.leave()
		require.False(t, fb.lease(0).wasAbandoned())
		b.tenure.Overstay(&b.use)
		require.True(t, fb.lease(0).wasAbandoned())
	})
	over(t, "a sharer on its way in is not admitted", func(t *testing.T, f *fixture, fb *fakeBackend) {
		let, goOn := gate()
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil)
		a.tenure.Overstay(&a.use)
		goOn()
		require.Equal(t, "in waiting", states(a, b))
		a.leave()
		f.requireUnder(fb.lease(1), b)
	})
	over(t, "after the end it does nothing", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := f.arrive(exclusive)
		f.arrive(exclusive)
		a.leave()
		a.tenure.Overstay(&a.use)
		require.False(t, fb.lease(0).wasAbandoned())
	})
}

func TestAbandon(t *testing.T) {
	over(t, "calls back for all users of the lease, and ends its renewal", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(shared), f.arrive(shared)
		called := map[tenure.Owner]int{}
		a.tenure.Abandon(func(o tenure.Owner) { called[o]++ })
		require.Equal(t, map[tenure.Owner]int{a: 1, b: 1}, called)
		require.True(t, fb.lease(0).wasAbandoned())
		require.Equal(t, "waiting", f.arrive(shared).state())
		require.True(t, a.leave())
		require.True(t, b.leave())
	})
	over(t, "without users it calls nobody", func(t *testing.T, f *fixture, _ *fakeBackend) {
		f.group.New(key, 0, nil).Abandon(func(tenure.Owner) { t.Error("called") })
	})
	over(t, "a caller at the backend is not admitted afterwards", func(t *testing.T, f *fixture, fb *fakeBackend) {
		grant, granted := gate()
		fb.answerWith(after(grant, grants))
		a := f.arrive(exclusive)
		f.shut()
		f.queue.Each(func(_ string, _ int, at *tenure.Tenure, _ int) {
			go at.Abandon(func(tenure.Owner) { t.Error("called") })
		})
		synctest.Wait()
		granted()
		require.Equal(t, "closed", a.state())
		require.Equal(t, 1, fb.lease(0).releases(), "a late grant is released")
	})
}
