package tenure_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// turns runs n callers, which all wait from the start, and returns how many of them entered the backend.
func turns(t *testing.T, f *fixture, fb *fakeBackend, n int, between func(i int)) int {
	t.Helper()
	callers := make([]*caller, n)
	for i := range callers {
		callers[i] = f.arrive(exclusive)
	}
	before := fb.count()
	for i, c := range callers {
		require.Equal(t, "in", c.state(), "caller %d", i)
		if i+1 < n {
			between(i)
		}
		require.True(t, c.leave())
	}
	return fb.count() - before + 1
}

func TestLeaseIsHandedOn(t *testing.T) {
	over(t, "from turn to turn, and released when nobody waits", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		require.Equal(t, "in waiting", states(a, b))
		require.False(t, a.use.Handoff())
		a.leave()
		require.Equal(t, "in", states(b))
		require.True(t, b.use.Handoff())
		require.Same(t, a.use.Lease(), b.use.Lease())
		require.Equal(t, a.use.Fence()+1, b.use.Fence())
		require.Zero(t, fb.lease(0).releases())
		require.True(t, b.leave())
		f.requireReleased(fb.lease(0))
	})
	with(handoffs(2), longest(time.Millisecond)).over(t, "without limit while no other instance waits", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.Equal(t, 1, turns(t, f, fb, 200, func(int) { time.Sleep(time.Millisecond) }))
	})
	with(handoffs(3)).over(t, "at most MaxHandoffs times while another instance waits", func(t *testing.T, f *fixture, fb *fakeBackend) {
		assert.Equal(t, 1, turns(t, f, fb, 4, func(int) { fb.lease(0).contend() }))
		assert.Equal(t, 2, turns(t, f, fb, 5, func(int) { fb.lease(1).contend() }))
	})
	with(longest(100*time.Millisecond)).over(t, "for at most MaxTenure while another instance waits", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).contend()
		time.Sleep(100*time.Millisecond - 1)
		a.leave()
		require.True(t, b.use.Handoff())
		time.Sleep(time.Nanosecond)
		b.leave()
		require.False(t, c.use.Handoff())
	})
	with(handoffs(2)).over(t, "and each lease has its own budget", func(t *testing.T, f *fixture, fb *fakeBackend) {
		contend := func(int) { fb.lease(len(fb.leases) - 1).contend() }
		require.Equal(t, 3, turns(t, f, fb, 9, contend))
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		contend(0)
		time.Sleep(100 * time.Millisecond)
		a.leave()
		contend(1)
		require.False(t, b.use.Handoff())
		b.leave()
		require.True(t, c.use.Handoff())
	})
	with(handoffs(0)).over(t, "not at all with MaxHandoffs 0", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.Equal(t, 5, turns(t, f, fb, 5, func(int) {}))
	})
	over(t, "not when unhealthy", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.Equal(t, 2, turns(t, f, fb, 3, func(i int) { fb.lease(0).set(func(l *fakeLease) { l.unhealthy = true }) }))
	})
	for name, left := range map[string]time.Duration{"with T/3 left": ttl / 3, "not with less than T/3 left": ttl/3 - 1} {
		over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			n := turns(t, f, fb, 2, func(int) { fb.lease(0).set(func(l *fakeLease) { l.until = time.Now().Add(left) }) })
			require.Equal(t, left == ttl/3, n == 1)
		})
	}
}

// The next Enter names a lease that may not be handed on, so that one exchange does both.
func TestNextEnterNamesTheLease(t *testing.T) {
	with(handoffs(0)).over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		require.Nil(t, fb.last().Prev)
		require.Equal(t, distributed.Request{Key: key, Instance: "here", Mode: exclusive, TTL: ttl}, fb.last())
		a.leave()
		require.Same(t, fb.lease(0), fb.last().Prev)
		require.Zero(t, fb.lease(0).releases(), "Enter has released it")
		b.leave()
		require.Equal(t, 1, fb.lease(1).releases())
	})
}

func TestModes(t *testing.T) {
	over(t, "readers under an exclusive lease", func(t *testing.T, f *fixture, fb *fakeBackend) {
		w, r, s, v := f.arrive(exclusive), f.arrive(shared), f.arrive(shared), f.arrive(exclusive)
		w.leave()
		require.Equal(t, "out in in waiting", states(w, r, s, v))
		r.leave()
		s.leave()
		require.True(t, v.use.Handoff(), "and then a writer again")
		v.leave()
		require.Equal(t, 1, fb.count())
	})
	over(t, "no writer under a shared lease", func(t *testing.T, f *fixture, fb *fakeBackend) {
		r, w := f.arrive(shared), f.arrive(exclusive)
		r.leave()
		require.Equal(t, "in", w.state())
		require.False(t, w.use.Handoff())
		require.Equal(t, 2, fb.count())
		require.Equal(t, exclusive, fb.last().Mode)
		require.Same(t, fb.lease(0), fb.last().Prev)
	})
}

// The receiver of a turn checks the lease again: what held when the turn was passed may not hold when it wakes (rule T2).
func TestReceiverChecksAgain(t *testing.T) {
	over(t, "the lease expires while the fence is fetched", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(func(ctx context.Context, l *fakeLease) error {
			time.Sleep(ttl)
			return brings(1, nil)(ctx, l)
		})
		a.leave()
		sleep(ttl)
		f.requireUnder(fb.lease(1), b)
	})
	over(t, "the lease is lost while the fence is fetched", func(t *testing.T, f *fixture, fb *fakeBackend) {
		a, b := f.arrive(exclusive), f.arrive(exclusive)
		fb.lease(0).empty(func(ctx context.Context, l *fakeLease) error {
			l.lose()
			return brings(1, nil)(ctx, l)
		})
		a.leave()
		require.Equal(t, "in", b.state())
		require.Nil(t, fb.last().Prev, "a lost lease is not named")
		require.Zero(t, b.losses())
		b.leave()
		require.Zero(t, fb.lease(0).releases())
	})
}

// A caller whose time has passed when it gets the turn does not ask the backend.
func TestTooLateToBegin(t *testing.T) {
	over(t, "", func(t *testing.T, f *fixture, fb *fakeBackend) {
		gone := f.newCaller(exclusively)
		gone.cancel()
		require.Equal(t, context.Canceled, gone.enter())
		late := f.newCaller(tenure.Ask{Mode: exclusive, Deadline: time.Now()})
		require.Equal(t, tenure.ErrTimeout, late.enter())
		f.group.Close()
		require.Equal(t, tenure.ErrClosed, f.newCaller(exclusively).enter())
		require.Empty(t, fb.asked)
		require.False(t, f.inUse())
	})
}

// With a real backend: a partition makes the lease unhealthy long before it expires.
func TestUnhealthyInPartition(t *testing.T) {
	pair(t, "", func(t *testing.T, backend *memlock.Backend, f, _ *fixture) {
		a, b, c := f.arrive(exclusive), f.arrive(exclusive), f.arrive(exclusive)
		backend.Partition(true)
		time.Sleep(ttl / 3)
		require.False(t, distributed.Over(time.Now(), a.use.Lease().Until()))
		require.True(t, a.leave())
		require.Equal(t, "unavailable unavailable", states(b, c))
		backend.Partition(false)
		require.Equal(t, "in", f.arrive(exclusive).state(), "the release was carried out when the partition healed")
	})
}

// TestLateRenewalMeetsATenureUsedAgain: a keepalive.Lease reports its renewal after it has unlocked, and may be late.
func TestLateRenewalMeetsATenureUsedAgain(t *testing.T) {
	fb := new(fakeBackend)
	f := newFixture(t, fb, func(c *tenure.Config) { c.Renewed = func(any, error) {} })
	var wg sync.WaitGroup
	for i := range 2000 {
		c := f.newCaller(exclusively)
		k := fmt.Sprint("order:product:", i)
		require.NoError(t, f.queue.Enter(c.ctx, &c.turn, k, local.Ask{Limit: local.Unlimited}))
		c.tenure = c.turn.Baton()
		require.NoError(t, c.tenure.Begin(c.ctx, &c.use, exclusively))
		lease := c.use.Lease().(*fakeLease)
		w := lease.watched()
		// Lease.Renewed has looked at its state, which is not finished, and is about to notify its watcher
		wg.Go(func() { w.LeaseRenewed(lease, time.Time{}, nil) })
		c.tenure.End(&c.use, time.Now())
		c.pass()
		c.cancel()
	}
	wg.Wait()
}
