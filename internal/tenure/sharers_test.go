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

// stuckInRefill starts a sharer beside another, which gets as far as fetching its fence; that ends with let.
func stuckInRefill(f *fixture, l *fakeLease, let <-chan struct{}, end error) *caller {
	left := get(l, func(l *fakeLease) int { return l.fences })
	l.empty(func(ctx context.Context, l *fakeLease) error {
		<-let
		return brings(left, end)(ctx, l)
	})
	c := f.arrive(shared)
	l.set(func(l *fakeLease) { l.fences = 1000 }) // for the others
	return c
}

func TestSharersUseOneLease(t *testing.T) {
	over(t, "which is released when the last one leaves", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, c := f.arrive(shared), f.arrive(shared), f.arrive(shared)
		require.Equal(t, "in in in", states(a, b, c))
		leave(a, b)
		require.Zero(t, fb.lease(0).releases())
		c.leave()
		require.Equal(t, 1, fb.count())
		require.Equal(t, 1, fb.lease(0).releases())
	})
	with(handoffs(0)).over(t, "also with MaxHandoffs 0, while no other instance waits", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(shared), f.arrive(shared)
		require.Equal(t, "in in", states(a, b))
		fb.lease(0).contend()
		c := f.arrive(shared)
		require.Equal(t, "waiting", c.state())
		leave(a, b)
		require.Equal(t, "in", c.state())
	})
}

// A lease that may admit no more sharers is drained: late ones wait until its users have left.
func TestDrain(t *testing.T) {
	with(handoffs(1)).over(t, "one of them enters for all", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(shared), f.arrive(shared)
		fb.lease(0).contend()
		c, e, w := f.arrive(shared), f.arrive(shared), f.arrive(exclusive)
		require.Equal(t, "in in waiting waiting waiting", states(a, b, c, e, w))
		a.leave()
		require.Equal(t, "waiting", c.state())
		b.leave()
		require.Equal(t, "in in waiting", states(c, e, w))
		require.Same(t, fb.lease(0), fb.last().Prev)
		require.Same(t, c.use.Lease(), e.use.Lease())
	})
	with(handoffs(1)).over(t, "it ends when nobody waits any more: late ones come in beside its users", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(shared), f.arrive(shared)
		fb.lease(0).contend()
		c, e, w := f.arrive(shared), f.arrive(shared), f.arrive(exclusive)
		require.Equal(t, "in in waiting waiting waiting", states(a, b, c, e, w))
		fb.lease(0).uncontend()
		synctest.Wait()
		require.Equal(t, "in in in in waiting", states(a, b, c, e, w))
		require.Equal(t, 1, fb.count())
		leave(a, b, c, e)
		require.Equal(t, "in", w.state())
	})
	with(handoffs(0)).over(t, "a NoWait caller is refused", func(t *testing.T, f *fixture, fb *fakeBackend) {
		f.arrive(shared)
		fb.lease(0).contend()
		require.Equal(t, "busy", f.arriveAs(tenure.Ask{Mode: shared, NoWait: true}).state())
	})
}

// readerAfterWriter returns a reader that works under the exclusive lease of a writer before it.
func readerAfterWriter(t *testing.T, f *fixture) *caller {
	w, r := f.arrive(exclusive), f.arrive(shared)
	w.leave()
	require.Equal(t, "in", r.state())
	require.Same(t, w.use.Lease(), r.use.Lease())
	return r
}

// An exclusive lease that only readers work under becomes a shared one as soon as another instance wants in.
func TestReadersUnderAnExclusiveLease(t *testing.T) {
	pair(t, "let readers of another instance in beside them", func(t *testing.T, _ *memlock.Backend, here, there *fixture) {
		a := readerAfterWriter(t, here)
		fence := a.use.Fence()
		b, w, c := there.arrive(shared), there.arrive(exclusive), here.arrive(shared)
		require.Equal(t, "in in waiting in", states(a, b, w, c))
		require.Same(t, a.use.Lease(), c.use.Lease(), "it goes on")
		require.Equal(t, fence, a.use.Fence())
		require.Greater(t, c.use.Fence(), fence)
		local := here.arrive(exclusive)
		for _, reader := range []*caller{a, b, c} {
			require.Equal(t, "waiting waiting", states(w, local))
			require.True(t, reader.leave())
		}
		if w.state() == "waiting" {
			w, local = local, w
		}
		require.Equal(t, "in waiting", states(w, local))
		require.Greater(t, w.use.Fence(), b.use.Fence())
	})
	pair(t, "and so do those that come while it is contended", func(t *testing.T, _ *memlock.Backend, here, there *fixture) {
		w, a := here.arrive(exclusive), here.arrive(shared)
		b := there.arrive(shared)
		w.leave()
		require.Equal(t, "in in", states(a, b))
	})
	pair(t, "when the lease is renewed, also those that do not wait", func(t *testing.T, _ *memlock.Backend, here, there *fixture) {
		a := readerAfterWriter(t, here)
		time.Sleep(ttl)
		b := there.arriveAs(tenure.Ask{Mode: shared, NoWait: true})
		require.Equal(t, "in in", states(a, b))
	})
	over(t, "admit no more if the lease cannot change", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := readerAfterWriter(t, f)
		b := f.arrive(shared)
		fb.lease(0).contend()
		synctest.Wait()
		c := f.arrive(shared)
		require.Equal(t, "in in waiting", states(a, b, c))
		leave(a, b)
		require.Equal(t, "in", c.state())
		require.Equal(t, shared, fb.last().Mode)
		require.Same(t, fb.lease(0), fb.last().Prev)
	})
	pair(t, "admit no more if the change has no answer", func(t *testing.T, b *memlock.Backend, f, there *fixture) {
		a := readerAfterWriter(t, f)
		waits := there.arrive(shared)
		require.Equal(t, "in", waits.state())
		leave(waits, a)
		a = readerAfterWriter(t, f)
		b.Partition(true)
		a.use.Lease().(interface{ SetContended(bool) }).SetContended(true)
		synctest.Wait()
		c := f.arrive(shared)
		require.Equal(t, "in waiting", states(a, c))
		b.Partition(false)
		a.leave()
		require.Equal(t, "in", c.state())
	})
	over(t, "admit no more if the change has not been answered within the claim window", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a := readerAfterWriter(t, f)
		fb.lease(0).set(func(l *fakeLease) { l.downgrading = make(chan struct{}) })
		fb.lease(0).contend()
		fb.lease(0).uncontend()
		b := f.arrive(shared)
		sleep(distributed.ClaimWindow(ttl))
		c := f.arrive(shared)
		require.Equal(t, "in in waiting", states(a, b, c))
		leave(a, b)
		require.Equal(t, "in", c.state())
	})
}

// A lease whose renewal is late is unfit for a moment only.
func TestReaderEntersWhenTheLeaseIsHealthyAgain(t *testing.T) {
	pair(t, "", func(t *testing.T, b *memlock.Backend, f, _ *fixture) {
		a := f.arrive(shared)
		b.Partition(true)
		time.Sleep(ttl / 4) // the claim fails
		c := f.arrive(shared)
		require.Equal(t, "in waiting", states(a, c))
		b.Partition(false)
		time.Sleep(ttl / 10)
		require.Equal(t, "in in", states(a, c))
	})
}

// Sharers begin side by side. Their lease can be lost or spent meanwhile; then one of them enters, and the others wait for
// it.
func TestOneSharerAtATimeIsAtTheBackend(t *testing.T) {
	over(t, "after the lease was lost", func(t *testing.T, f *fixture, fb *fakeBackend) {
		let, goOn := gate()
		grant, granted := gate()
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil)
		c := stuckInRefill(f, fb.lease(0), let, nil)
		fb.answerWith(after(grant, grants))
		fb.lease(0).lose()
		goOn()
		e := f.arrive(shared)
		require.Equal(t, "lost waiting waiting waiting", states(a, b, c, e))
		granted()
		f.requireUnder(fb.lease(1), b, c, e)
		require.Equal(t, 2, fb.count())
		require.Equal(t, 1, fb.mostEnters())
		leave(b, c, e)
		require.Equal(t, 1, fb.lease(1).releases())
	})
	over(t, "when that one fails, the next enters", func(t *testing.T, f *fixture, fb *fakeBackend) {
		let, goOn := gate()
		answering, answer := gate()
		f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil)
		c := stuckInRefill(f, fb.lease(0), let, nil)
		fb.answerWith(after(answering, fails(distributed.ErrUnavailable)), grants)
		fb.lease(0).lose()
		goOn()
		answer()
		in := []*caller{b, c}
		if c.state() == "unavailable" {
			in = []*caller{c, b}
		}
		require.Equal(t, "unavailable in", states(in...))
	})
	with(handoffs(0)).over(t, "an unused fresh lease is watched before another sharer makes it prev", func(t *testing.T, f *fixture, fb *fakeBackend) {
		first, second := make(chan struct{}), make(chan struct{})
		f.arrive(shared)
		b, c := stuckInRefill(f, fb.lease(0), first, nil), stuckInRefill(f, fb.lease(0), second, nil)
		unfenced := func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			l := fb.grant()
			l.empty(brings(0, distributed.ErrUnavailable))
			l.set(func(l *fakeLease) {
				l.watching = func() { close(second); time.Sleep(time.Millisecond) } // c looks meanwhile
			})
			return l, nil, nil
		}
		fb.answerWith(unfenced, fails(distributed.ErrUnavailable))
		fb.lease(0).lose()
		close(first)
		sleep(time.Millisecond)
		require.Equal(t, "unavailable unavailable", states(b, c))
		f.requireReleased(fb.lease(1))
	})
	with(handoffs(1)).over(t, "a lease that another sharer has joined does not become prev", func(t *testing.T, f *fixture, fb *fakeBackend) {
		let, goOn := gate()
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil) // it fetches fences for the lease
		fb.lease(0).contend()
		a.leave()
		c := f.arrive(shared) // it finds one, and is the last that the lease may serve
		require.Equal(t, "waiting in", states(b, c))
		goOn()
		require.Equal(t, "waiting", b.state())
		require.Same(t, fb.lease(0), c.use.Lease())
		c.leave()
		f.requireUnder(fb.lease(1), b)
	})
}

// Sharers count one by one when they are let in, so those that ask at the same moment cannot exceed the budget together.
func TestSharersKeepToTheBudget(t *testing.T) {
	with(handoffs(2)).over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		let, goOn := gate()
		a := f.arrive(shared)
		fb.lease(0).contend()
		b, c := stuckInRefill(f, fb.lease(0), let, nil), stuckInRefill(f, fb.lease(0), let, nil)
		e := f.arrive(shared)
		require.Equal(t, "in waiting waiting in", states(a, b, c, e))
		goOn()
		if b.state() == "waiting" {
			b, c = c, b
		}
		require.Equal(t, "in in waiting in", states(a, b, c, e))
		leave(a, b, e)
		require.Equal(t, "in", c.state())
	})
}

// A shared lease that the backend disowns, in answer to a refill, admits nobody further; its users are notified when it is
// lost.
func TestDisownedSharedLeaseIsDrained(t *testing.T) {
	over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		let, goOn := gate()
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, distributed.ErrLeaseLost)
		goOn()
		require.Equal(t, "in waiting waiting", states(a, b, f.arrive(shared)))
		time.Sleep(time.Millisecond)
		fb.lease(0).lose()
		synctest.Wait()
		require.Equal(t, "lost in", states(a, b))
		require.Same(t, fb.lease(1), b.use.Lease())
	})
}
