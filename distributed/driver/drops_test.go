package driver

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

const dropTTL = 6 * time.Second

// quiet runs a test with one process without faults.
func quiet(t *testing.T, f func(t *testing.T, c *simClient, enter func(key string) (distributed.Lease, distributed.Place))) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		c := newSimClient(ctx, newSimService(), simSessions, dropTTL, 2, 1) // one Drop at a time
		c.withFaults(false)
		defer func() {
			_ = c.b.Close()
			cancel()
			c.late.Wait()
		}()
		n := 0
		f(t, c, func(key string) (distributed.Lease, distributed.Place) {
			n++
			l, p, err := c.b.Enter(ctx, distributed.Request{Key: key, Instance: string(rune('a' + n)), TTL: dropTTL})
			require.NoError(t, err)
			return l, p
		})
	})
}

// A removal that the service refuses holds up no other, whoever waits for it is told, and it goes on when the right is given back.
func TestARefusedDropHoldsUpNoOther(t *testing.T) {
	quiet(t, func(t *testing.T, c *simClient, enter func(string) (distributed.Lease, distributed.Place)) {
		c.deny("denied")
		for range 5 {
			l, _ := enter("denied")
			require.ErrorIs(t, l.Release(t.Context()), distributed.ErrRefused)
			c.deny("")
			require.NoError(t, l.Release(t.Context()), "the old refusal is not the answer")
			c.deny("denied")
		}
		l, _ := enter("denied")
		require.ErrorIs(t, l.Release(t.Context()), distributed.ErrRefused)
		for range 20 {
			other, _ := enter("other")
			start := time.Now()
			require.NoError(t, other.Release(t.Context()))
			require.Less(t, time.Since(start), dropTTL/20)
		}
		c.deny("")
		require.NoError(t, l.Release(t.Context()))
	})
}

// A second Leave waits for the answer, as the first one did that had no time.
func TestASecondLeaveWaitsForTheAnswer(t *testing.T) {
	quiet(t, func(t *testing.T, c *simClient, enter func(string) (distributed.Lease, distributed.Place)) {
		l, _ := enter("k")
		_, p := enter("k")
		short, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Leave(short), context.Canceled)
		require.NoError(t, p.Leave(t.Context()))
		id := AttemptOf[simWire](p).Wire.entry.id
		c.v.do(func() { require.True(t, c.v.known[id].gone) })
		require.NoError(t, p.Leave(t.Context()))
		require.NoError(t, l.Release(t.Context()))
	})
}

// A lease does not keep the one that its Enter released, or memory would grow with every hand-over inside a process.
func TestALeaseKeepsNoLeaseBefore(t *testing.T) {
	quiet(t, func(t *testing.T, c *simClient, _ func(string) (distributed.Lease, distributed.Place)) {
		enter := func(prev distributed.Lease) distributed.Lease {
			l, _, err := c.b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "a", TTL: dropTTL, Prev: prev})
			require.NoError(t, err)
			return l
		}
		var all []weak.Pointer[Attempt[simWire]]
		l := enter(nil)
		for range 10 {
			all = append(all, weak.Make(AttemptOf[simWire](l)))
			l = enter(l)
		}
		runtime.GC()
		kept := 0
		for _, w := range all {
			if w.Value() != nil {
				kept++
			}
		}
		require.LessOrEqual(t, kept, 1)
		require.NoError(t, l.Release(t.Context()))
	})
}
