package redislock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

// gated is a server that answers when told to, each call with its own first argument.
type gated struct {
	transport
	gate      chan struct{}
	exchanges atomic.Int32
	together  atomic.Int32 // the most calls in one exchange
}

// node implements transport: a single server.
func (g *gated) node(context.Context, string) string { return "" }

func (g *gated) do(ctx context.Context, calls ...*call) {
	g.exchanges.Add(1)
	for n := int32(len(calls)); ; {
		old := g.together.Load()
		if n <= old || g.together.CompareAndSwap(old, n) {
			break
		}
	}
	at, _ := ctx.Deadline()
	select {
	case <-g.gate:
		for _, c := range calls {
			c.reply = fmt.Sprint(c.wire[wireHead:]...)
		}
	case <-time.After(time.Until(at)):
		for _, c := range calls {
			c.err = context.DeadlineExceeded
		}
	}
}

func (g *group) gathered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

func TestGroupSharesAnExchangeBeyondTheLanes(t *testing.T) {
	t.Parallel()
	server := &gated{gate: make(chan struct{})}
	g := &group{transport: server}
	const gathered, loads = 3 * fairLoad, 3
	const callers = maxLanes + gathered
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c := newCall(beatScript, nil, i)
			g.do(within(t.Context(), patience), c)
			if c.err != nil || c.number(0) != int64(i) {
				t.Errorf("caller %d got %v, %v", i, c.reply, c.err)
			}
		})
	}
	require.Eventually(t, func() bool { return g.gathered() == gathered }, patience, time.Millisecond)
	require.Equal(t, int32(maxLanes), server.exchanges.Load())
	close(server.gate)
	wg.Wait()
	require.Equal(t, int32(maxLanes+loads), server.exchanges.Load())
	require.Equal(t, int32(fairLoad), server.together.Load())
	require.Zero(t, g.busy)
}

func TestGroupCallerCanGiveUp(t *testing.T) {
	t.Parallel()
	server := &gated{gate: make(chan struct{})}
	g := &group{transport: server}
	var wg sync.WaitGroup
	for range maxLanes {
		wg.Go(func() { g.do(within(t.Context(), patience), newCall(beatScript, nil, 0)) })
	}
	require.Eventually(t, func() bool { return server.exchanges.Load() == maxLanes }, patience, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	for _, caller := range []context.Context{within(t.Context(), 20*time.Millisecond), within(ctx, patience)} {
		wg.Go(func() {
			c := newCall(beatScript, nil, 1)
			g.do(caller, c)
			if c.err == nil {
				t.Error("an answer without an exchange")
			}
		})
	}
	require.Eventually(t, func() bool { return g.gathered() >= 1 }, patience, time.Millisecond)
	cancel()
	require.Eventually(t, func() bool { return g.gathered() == 0 }, patience, time.Millisecond)
	close(server.gate)
	wg.Wait()
	require.Zero(t, g.busy)
	require.Equal(t, int32(maxLanes), server.exchanges.Load())
}

// TestGroupKeepsNobodyPastItsDeadline: whoever carried was once kept until the last of those it carried gave up.
func TestGroupKeepsNobodyPastItsDeadline(t *testing.T) {
	t.Parallel()
	server := &gated{} // never answers
	g := &group{transport: server}
	var wg sync.WaitGroup
	for range maxLanes {
		wg.Go(func() { g.do(within(t.Context(), 100*time.Millisecond), newCall(beatScript, nil, 0)) })
	}
	require.Eventually(t, func() bool { return server.exchanges.Load() == maxLanes }, patience, time.Millisecond)
	for n, limit := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 300 * time.Millisecond} {
		wg.Go(func() {
			start := time.Now()
			g.do(within(t.Context(), limit), newCall(beatScript, nil, 1))
			if took := time.Since(start); took < limit-time.Millisecond || took > limit+150*time.Millisecond {
				t.Errorf("%v took %v", limit, took) // nor is the exchange broken off before the last of them gives up
			}
		})
		require.Eventually(t, func() bool { return g.gathered() == n+1 }, patience, time.Millisecond)
	}
	wg.Wait()
	require.Zero(t, g.busy)
}

// TestGroupUnderRandomEnds: callers that give up at any moment lose no lane and take no other's answer.
func TestGroupUnderRandomEnds(t *testing.T) {
	t.Parallel()
	server := &gated{gate: make(chan struct{})}
	g := &group{transport: server}
	stop := make(chan struct{})
	var gatekeeper, wg sync.WaitGroup
	gatekeeper.Go(func() {
		for {
			select {
			case server.gate <- struct{}{}:
			case <-stop:
				return
			}
		}
	})
	for i := range 64 {
		wg.Go(func() {
			for n := range 200 {
				c := newCall(beatScript, nil, i*1000+n)
				g.do(within(t.Context(), time.Duration(i*n%7)*50*time.Microsecond), c)
				if c.err == nil && c.number(0) != int64(i*1000+n) {
					t.Errorf("got %v", c.reply)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	gatekeeper.Wait()
	require.Zero(t, g.busy)
	require.Empty(t, g.waiting)
}

// BenchmarkOwnKeys is 64 goroutines with a key each, which release in the background.
func BenchmarkOwnKeys(b *testing.B) {
	s := redistest.Start(b)
	backend := open(b, s.Addr)
	const callers = 64
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		u := newUser(b, backend).lasting(5 * time.Second)
		name := "bench:own:" + string(rune('0'+i))
		wg.Go(func() {
			l := u.lease(name)
			for n.Add(1) <= int64(b.N) {
				l.StartRelease()
				l = u.lease(name, func(r *distributed.Request) { r.Prev = l }) // as a tenure does, which cannot know if it is out yet
			}
		})
	}
	wg.Wait()
}

// BenchmarkOwnKeysSetNX is the same by the common convention.
func BenchmarkOwnKeysSetNX(b *testing.B) {
	s := redistest.Start(b)
	c := s.Client()
	const callers = 64
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		name := "bench:own:" + string(rune('0'+i))
		wg.Go(func() {
			for n.Add(1) <= int64(b.N) {
				c.SetNX(context.Background(), name, "unique", 5*time.Second)
				c.Del(context.Background(), name)
			}
		})
	}
	wg.Wait()
}
