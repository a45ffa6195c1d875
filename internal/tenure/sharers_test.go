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
	l.set(func(l *fakeLease) {
		left := l.fences
		l.fences, l.refill = 0, func(context.Context) error {
			<-let
			refilled(l, left)
			return end
		}
	})
	c := f.arrive(shared)
	l.set(func(l *fakeLease) { l.fences = 1000 }) // for the others
	return c
}

func TestSharersUseOneLease(t *testing.T) {
	bubble(t, "which is released when the last one leaves", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a, b, c := f.arrive(shared), f.arrive(shared), f.arrive(shared)
		require.Equal(t, "in in in", states(a, b, c))
		a.leave()
		b.leave()
		require.Zero(t, fb.lease(0).releases())
		c.leave()
		n, _ := fb.enters()
		require.Equal(t, 1, n)
		require.Equal(t, 1, fb.lease(0).releases())
		f.close()
	})
	bubble(t, "also with MaxHandoffs 0, while no other instance waits", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, handoffs(0))
		a, b := f.arrive(shared), f.arrive(shared)
		require.Equal(t, "in in", states(a, b))
		fb.lease(0).contend()
		c := f.arrive(shared)
		require.Equal(t, "waiting", c.state())
		a.leave()
		b.leave()
		require.Equal(t, "in", c.state())
		c.leave()
		f.close()
	})
}

// A lease that may admit no more sharers is drained: late ones wait until its users have left.
func TestDrain(t *testing.T) {
	bubble(t, "one of them enters for all", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, handoffs(1))
		a, b := f.arrive(shared), f.arrive(shared)
		fb.lease(0).contend()
		c, e, w := f.arrive(shared), f.arrive(shared), f.arrive(exclusive)
		require.Equal(t, "in in waiting waiting waiting", states(a, b, c, e, w))
		a.leave()
		require.Equal(t, "waiting", c.state())
		b.leave()
		require.Equal(t, "in in waiting", states(c, e, w))
		_, req := fb.enters()
		require.Same(t, fb.lease(0), req.Prev)
		require.Same(t, c.use.Lease(), e.use.Lease())
		c.leave()
		e.leave()
		w.leave()
		f.close()
	})
	bubble(t, "it ends when nobody waits any more, and the late ones enter beside its users", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, handoffs(1))
		a, b := f.arrive(shared), f.arrive(shared)
		fb.lease(0).contend()
		c, e, w := f.arrive(shared), f.arrive(shared), f.arrive(exclusive)
		require.Equal(t, "in in waiting waiting waiting", states(a, b, c, e, w))
		fb.lease(0).uncontend()
		synctest.Wait()
		require.Equal(t, "in in in in waiting", states(a, b, c, e, w))
		n, _ := fb.enters()
		require.Equal(t, 1, n)
		for _, reader := range []*caller{a, b, c, e} {
			reader.leave()
		}
		require.Equal(t, "in", w.state())
		w.leave()
		f.close()
	})
	bubble(t, "a NoWait caller is refused", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, handoffs(0))
		a := f.arrive(shared)
		fb.lease(0).contend()
		require.Equal(t, "busy", f.arriveAs(tenure.Ask{Mode: shared, NoWait: true}).state())
		a.leave()
		f.close()
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
	over := func(t *testing.T, test func(t *testing.T, here, there *fixture)) {
		b := memlock.New()
		here, there := newFixture(t, b), newFixture(t, b, named("there"))
		test(t, here, there)
		here.close()
		there.close()
		require.NoError(t, b.Close())
	}
	bubble(t, "let readers of another instance in beside them", func(t *testing.T) {
		over(t, func(t *testing.T, here, there *fixture) {
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
			w.leave()
			local.leave()
		})
	})
	bubble(t, "and so do those that come while it is contended", func(t *testing.T) {
		over(t, func(t *testing.T, here, there *fixture) {
			w, a := here.arrive(exclusive), here.arrive(shared)
			b := there.arrive(shared)
			w.leave()
			require.Equal(t, "in in", states(a, b))
			a.leave()
			b.leave()
		})
	})
	bubble(t, "when the lease is renewed, also those that do not wait", func(t *testing.T) {
		over(t, func(t *testing.T, here, there *fixture) {
			a := readerAfterWriter(t, here)
			time.Sleep(ttl)
			b := there.arriveAs(tenure.Ask{Mode: shared, NoWait: true})
			require.Equal(t, "in in", states(a, b))
			a.leave()
			b.leave()
		})
	})
	bubble(t, "admit no more if the lease cannot change", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		a := readerAfterWriter(t, f)
		b := f.arrive(shared)
		fb.lease(0).contend()
		synctest.Wait()
		c := f.arrive(shared)
		require.Equal(t, "in in waiting", states(a, b, c))
		a.leave()
		b.leave()
		require.Equal(t, "in", c.state())
		_, req := fb.enters()
		require.Equal(t, shared, req.Mode)
		require.Same(t, fb.lease(0), req.Prev)
		c.leave()
		f.close()
	})
	bubble(t, "admit no more if the change has no answer", func(t *testing.T) {
		b := memlock.New()
		f, there := newFixture(t, b), newFixture(t, b, named("there"))
		a := readerAfterWriter(t, f)
		waits := there.arrive(shared)
		require.Equal(t, "in", waits.state())
		waits.leave()
		a.leave()
		a = readerAfterWriter(t, f)
		b.Partition(true)
		a.use.Lease().(interface{ SetContended(bool) }).SetContended(true)
		synctest.Wait()
		c := f.arrive(shared)
		require.Equal(t, "in waiting", states(a, c))
		b.Partition(false)
		a.leave()
		require.Equal(t, "in", c.state())
		c.leave()
		f.close()
		there.close()
		require.NoError(t, b.Close())
	})
	bubble(t, "admit no more if the change has not been answered within the claim window", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		fb.answerWith(grantsDeaf)
		a := readerAfterWriter(t, f)
		fb.lease(0).contend()
		fb.lease(0).uncontend()
		b := f.arrive(shared)
		time.Sleep(distributed.ClaimWindow(ttl))
		synctest.Wait()
		c := f.arrive(shared)
		require.Equal(t, "in in waiting", states(a, b, c))
		a.leave()
		b.leave()
		require.Equal(t, "in", c.state())
		c.leave()
		f.close()
	})
}

// A lease whose renewal is late is unfit for a moment only.
func TestReaderEntersWhenTheLeaseIsHealthyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		f := newFixture(t, b)
		a := f.arrive(shared)
		b.Partition(true)
		time.Sleep(ttl / 4) // the claim fails
		c := f.arrive(shared)
		require.Equal(t, "in waiting", states(a, c))
		b.Partition(false)
		time.Sleep(ttl / 10)
		require.Equal(t, "in in", states(a, c))
		a.leave()
		c.leave()
		f.close()
		require.NoError(t, b.Close())
	})
}

// Sharers begin side by side. Their lease can be lost or spent meanwhile; then one of them enters, and the others wait for
// it.
func TestOneSharerAtATimeIsAtTheBackend(t *testing.T) {
	bubble(t, "after the lease was lost", func(t *testing.T) {
		fb, let, grant := new(fakeBackend), make(chan struct{}), make(chan struct{})
		f := newFixture(t, fb)
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil)
		c := stuckInRefill(f, fb.lease(0), let, nil)
		fb.answerWith(after(grant, grants))
		fb.lease(0).lose()
		close(let)
		synctest.Wait()
		e := f.arrive(shared)
		require.Equal(t, "lost waiting waiting waiting", states(a, b, c, e))
		close(grant)
		synctest.Wait()
		require.Equal(t, "in in in", states(b, c, e))
		n, _ := fb.enters()
		require.Equal(t, 2, n)
		require.Equal(t, 1, fb.mostEnters())
		for _, c := range []*caller{b, c, e} {
			require.Same(t, fb.lease(1), c.use.Lease())
			c.leave()
		}
		require.Equal(t, 1, fb.lease(1).releases())
		f.close()
	})
	bubble(t, "when that one fails, the next enters", func(t *testing.T) {
		fb, let, answer := new(fakeBackend), make(chan struct{}), make(chan struct{})
		f := newFixture(t, fb)
		f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil)
		c := stuckInRefill(f, fb.lease(0), let, nil)
		fb.answerWith(after(answer, fails(distributed.ErrUnavailable)), grants)
		fb.lease(0).lose()
		close(let)
		synctest.Wait()
		close(answer)
		synctest.Wait()
		in := []*caller{b, c}
		if c.state() == "unavailable" {
			in = []*caller{c, b}
		}
		require.Equal(t, "unavailable in", states(in...))
		in[1].leave()
		f.close()
	})
	bubble(t, "an unused fresh lease is watched before another sharer makes it prev", func(t *testing.T) {
		fb, first, second := new(fakeBackend), make(chan struct{}), make(chan struct{})
		f := newFixture(t, fb, handoffs(0))
		f.arrive(shared)
		b, c := stuckInRefill(f, fb.lease(0), first, nil), stuckInRefill(f, fb.lease(0), second, nil)
		unfenced := func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
			l := fb.grant()
			l.set(func(l *fakeLease) {
				l.fences, l.refill = 0, func(context.Context) error { return distributed.ErrUnavailable }
				l.watching = func() { close(second); time.Sleep(time.Millisecond) } // c looks meanwhile
			})
			return l, nil, nil
		}
		fb.answerWith(unfenced, fails(distributed.ErrUnavailable))
		fb.lease(0).lose()
		close(first)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, "unavailable unavailable", states(b, c))
		require.Equal(t, 1, fb.lease(1).releases())
		require.False(t, f.inUse())
		f.close()
	})
	bubble(t, "a lease that another sharer has joined does not become prev", func(t *testing.T) {
		fb, let := new(fakeBackend), make(chan struct{})
		f := newFixture(t, fb, handoffs(1))
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, nil) // it fetches fences for the lease
		fb.lease(0).contend()
		a.leave()
		c := f.arrive(shared) // it finds one, and is the last that the lease may serve
		require.Equal(t, "waiting in", states(b, c))
		close(let)
		synctest.Wait()
		require.Equal(t, "waiting", b.state())
		require.Same(t, fb.lease(0), c.use.Lease())
		c.leave()
		require.Equal(t, "in", b.state())
		require.Same(t, fb.lease(1), b.use.Lease())
		b.leave()
		f.close()
	})
}

// Sharers count one by one when they are let in, so those that ask at the same moment cannot exceed the budget together.
func TestSharersKeepToTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb, let := new(fakeBackend), make(chan struct{})
		f := newFixture(t, fb, handoffs(2))
		a := f.arrive(shared)
		fb.lease(0).contend()
		b, c := stuckInRefill(f, fb.lease(0), let, nil), stuckInRefill(f, fb.lease(0), let, nil)
		e := f.arrive(shared)
		require.Equal(t, "in waiting waiting in", states(a, b, c, e))
		close(let)
		synctest.Wait()
		if b.state() == "waiting" {
			b, c = c, b
		}
		require.Equal(t, "in in waiting in", states(a, b, c, e))
		a.leave()
		b.leave()
		e.leave()
		require.Equal(t, "in", c.state())
		c.leave()
		f.close()
	})
}

// A shared lease that the backend disowns, in answer to a refill, admits nobody further; its users are notified when it is
// lost.
func TestDisownedSharedLeaseIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb, let := new(fakeBackend), make(chan struct{})
		f := newFixture(t, fb)
		a := f.arrive(shared)
		b := stuckInRefill(f, fb.lease(0), let, distributed.ErrLeaseLost)
		close(let)
		synctest.Wait()
		require.Equal(t, "in waiting waiting", states(a, b, f.arrive(shared)))
		time.Sleep(time.Millisecond)
		fb.lease(0).lose()
		synctest.Wait()
		require.Equal(t, "lost in", states(a, b))
		require.Same(t, fb.lease(1), b.use.Lease())
	})
}
