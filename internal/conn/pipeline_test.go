package conn

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long something may take that has no bound of its own.
const patience = 10 * time.Second

var anyScript = NewScript("any", "return 1")

// lone is a single server.
type lone struct {
	Transport
	gate      chan struct{}
	exchanges atomic.Int32
}

func (*lone) Slots() (callers, acked int)         { return MaxSlots, ackSlots }
func (*lone) Node(context.Context, string) string { return "" }

// taken has all slots taken by callers, until the gate opens.
func (l *lone) taken(t *testing.T, p *pipeline, callers *sync.WaitGroup) {
	for range MaxSlots {
		callers.Go(func() { p.Do(Within(t.Context(), patience), NewCall(anyScript, nil, 0)) })
	}
	require.Eventually(t, func() bool { return l.exchanges.Load() == MaxSlots }, patience, time.Millisecond)
}

// gated replies when told to, to each call with its own first argument.
type gated struct {
	lone
	together atomic.Int32 // the most calls in one exchange
}

func newGated() *gated { return &gated{lone: lone{gate: make(chan struct{})}} }

func (g *gated) Do(ctx context.Context, calls ...*Call) {
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
			c.Reply = fmt.Sprint(c.Args[HeadLen:]...)
		}
	case <-time.After(time.Until(at)):
		for _, c := range calls {
			c.Err = context.DeadlineExceeded
		}
	}
}

func pipelined(t Transport) *pipeline { return Pipelined(t).(*pipeline) }

func (p *pipeline) gathered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

func TestPipelineSharesExchangesBeyondTheSlots(t *testing.T) {
	t.Parallel()
	server := newGated()
	p := pipelined(server)
	const gathered, batches = 3 * fairBatch, 3
	const callers = MaxSlots + gathered
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c := NewCall(anyScript, nil, i)
			p.Do(Within(t.Context(), patience), c)
			if c.Err != nil || c.Reply != fmt.Sprint(i) {
				t.Errorf("caller %d got %v, %v", i, c.Reply, c.Err)
			}
		})
	}
	require.Eventually(t, func() bool { return p.gathered() == gathered }, patience, time.Millisecond)
	require.Equal(t, int32(MaxSlots), server.exchanges.Load())
	close(server.gate)
	wg.Wait()
	require.Equal(t, int32(MaxSlots+batches), server.exchanges.Load())
	require.Equal(t, int32(fairBatch), server.together.Load())
	require.Zero(t, p.busy)
}

func TestPipelineCallerCanGiveUp(t *testing.T) {
	t.Parallel()
	server := newGated()
	p := pipelined(server)
	var wg sync.WaitGroup
	server.taken(t, p, &wg)
	ctx, cancel := context.WithCancel(t.Context())
	for _, caller := range []context.Context{Within(t.Context(), 20*time.Millisecond), Within(ctx, patience)} {
		wg.Go(func() {
			c := NewCall(anyScript, nil, 1)
			p.Do(caller, c)
			if c.Err == nil {
				t.Error("a reply without an exchange")
			}
		})
	}
	require.Eventually(t, func() bool { return p.gathered() >= 1 }, patience, time.Millisecond)
	cancel()
	require.Eventually(t, func() bool { return p.gathered() == 0 }, patience, time.Millisecond)
	close(server.gate)
	wg.Wait()
	require.Zero(t, p.busy)
	require.Equal(t, int32(MaxSlots), server.exchanges.Load())
}

// TestPipelineKeepsNobodyPastItsDeadline: a leader was once kept until the last waiter of its batch gave up.
func TestPipelineKeepsNobodyPastItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipelined(&gated{}) // never answers
		var wg sync.WaitGroup
		for range MaxSlots {
			wg.Go(func() { p.Do(Within(t.Context(), 100*time.Millisecond), NewCall(anyScript, nil, 0)) })
		}
		synctest.Wait()
		for n, limit := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 300 * time.Millisecond} {
			wg.Go(func() {
				start := time.Now()
				p.Do(Within(t.Context(), limit), NewCall(anyScript, nil, 1))
				if took := time.Since(start); took != limit {
					t.Errorf("%v took %v", limit, took) // nor is the exchange broken off before the last of them gives up
				}
			})
			synctest.Wait()
			require.Equal(t, n+1, p.gathered())
		}
		wg.Wait()
		require.Zero(t, p.busy)
	})
}

// TestPipelineUnderRandomEnds: callers that give up at any moment lose no slot and get no other's reply.
func TestPipelineUnderRandomEnds(t *testing.T) {
	t.Parallel()
	server := newGated()
	p := pipelined(server)
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
				c := NewCall(anyScript, nil, i*1000+n)
				p.Do(Within(t.Context(), time.Duration(i*n%7)*50*time.Microsecond), c)
				if c.Err == nil && c.Reply != fmt.Sprint(i*1000+n) {
					t.Errorf("got %v", c.Reply)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	gatekeeper.Wait()
	require.Zero(t, p.busy)
	require.Empty(t, p.waiting)
}

// A renewal is sent while the exchanges of callers take all slots, and others wait for one.
func TestPipelineRenewalsGoAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newGated()
		p := pipelined(server)
		ctx := Within(t.Context(), time.Second)
		var wg sync.WaitGroup
		for range MaxSlots + 3 {
			wg.Go(func() { p.Do(ctx, NewCall(anyScript, nil, "caller")) })
		}
		synctest.Wait()
		require.Equal(t, 3, p.gathered())
		wg.Go(func() {
			c := NewCall(anyScript, nil, "renewal")
			c.Ahead = true
			p.Do(ctx, c)
		})
		synctest.Wait()
		require.EqualValues(t, MaxSlots+1, server.exchanges.Load())
		require.Equal(t, 3, p.gathered())
		close(server.gate)
		wg.Wait()
		require.Zero(t, p.busy)
	})
}

// unconnected is a server that nobody can connect to yet: as in go-redis, the end of the context ends the dial. The first
// MaxSlots exchanges fail when gate says so.
type unconnected struct {
	lone
	connected chan struct{}
}

func (u *unconnected) Do(ctx context.Context, calls ...*Call) {
	if u.exchanges.Add(1) <= MaxSlots {
		<-u.gate
		return
	}
	select {
	case <-u.connected:
	case <-ctx.Done():
	}
	for _, c := range calls {
		c.Reply, c.Err = fmt.Sprint(c.Args[HeadLen:]...), ctx.Err()
	}
}

// TestPipelineLeaderCanGiveUpADial: a leader was once kept until its dial had ended, however long that took. What it leads
// is sent all the same.
func TestPipelineLeaderCanGiveUpADial(t *testing.T) {
	t.Parallel()
	server := &unconnected{lone{gate: make(chan struct{})}, make(chan struct{})}
	p := pipelined(server)
	var busy, others sync.WaitGroup
	server.taken(t, p, &busy)
	ctx, cancel := context.WithCancel(t.Context())
	led := make(chan error, 1)
	go func() {
		c := NewCall(anyScript, nil, 1)
		p.Do(Within(ctx, 2*patience), c) // the latest deadline: it leads
		led <- c.Err
	}()
	for i := range 3 {
		others.Go(func() {
			c := NewCall(anyScript, nil, i)
			p.Do(Within(t.Context(), patience), c)
			if c.Err != nil || c.Reply != fmt.Sprint(i) {
				t.Errorf("caller %d got %v, %v", i, c.Reply, c.Err)
			}
		})
	}
	require.Eventually(t, func() bool { return p.gathered() == 4 }, patience, time.Millisecond)
	server.gate <- struct{}{} // a slot is free
	require.Eventually(t, func() bool { return p.gathered() == 0 }, patience, time.Millisecond)
	cancel()
	select {
	case err := <-led:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience / 2):
		t.Fatal("the leader waits for its dial")
	}
	close(server.gate)
	close(server.connected)
	others.Wait()
	busy.Wait()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.busy == 0 }, patience, time.Millisecond)
}
