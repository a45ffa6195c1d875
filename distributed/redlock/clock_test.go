package redlock

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// fenceOf enters with a backend of its own, and returns a fence of the lease.
func fenceOf(t *testing.T, s *servers, key string) uint64 {
	t.Helper()
	b := linked(t, s)
	defer func() { require.NoError(t, b.Close()) }()
	return refilled(t, b, key)
}

// refilled acquires the lock for a fence.
func refilled(t *testing.T, b *Backend, key string) uint64 {
	t.Helper()
	l := leaseOf(t, b, request(key, "a", lasting(faultTTL)))
	require.NoError(t, l.Refill(t.Context()))
	fence, ok := l.NextFence()
	require.True(t, ok)
	release(t, l)
	return fence
}

// Clocks of a minority are ahead, and the keys are idle for longer than fences are remembered: the next process reckons by other servers.
func TestFencesGrowThoughClocksDisagree(t *testing.T) {
	testscope.Long(t, "sets the servers' clocks")
	t.Parallel()
	for n, ahead := range map[int]int{3: 1, 5: 2} {
		t.Run(fmt.Sprint(ahead, " of ", n), func(t *testing.T) {
			t.Parallel()
			s := startWithClocks(t, n)
			for i := range ahead {
				s.ahead[i].Add(int64(10 * time.Minute))
			}
			first := make([]uint64, 16)
			for k := range first {
				first[k] = fenceOf(t, s, fmt.Sprint("k", k))
			}
			for i := range n {
				s.ahead[i].Add(int64(5 * time.Minute)) // 4 T is less
			}
			for k := range first {
				require.Greater(t, fenceOf(t, s, fmt.Sprint("k", k)), first[k])
			}
		})
	}
}

// The clock of the client takes no part in fences: it may be set back.
func TestFencesGrowThoughOurClockIsWrong(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	before := fenceOf(t, s, "k")
	for range 3 {
		b := linked(t, s)
		b.clock.Store(time.Now().Add(-10 * time.Minute).UnixNano())
		fence := refilled(t, b, "k")
		require.Greater(t, fence, before)
		before = fence
		s.do("DEL", fenceKey("k")) // as after a long time
	}
}

// Two majorities share one server, whose clock is set forward: the vote of the first expires there, and it does not count for the second.
func TestAClockThatIsSetForwardInBothMajorities(t *testing.T) {
	testscope.Long(t, "sets a server's clock")
	t.Parallel()
	const ttl = 2 * time.Second
	s := startWithClocks(t, 5)
	first := leaseOf(t, linked(t, s, 0, 1, 2), request("k", "x", lasting(ttl)))
	p, a := placeOf(t, linked(t, s, 2, 3, 4), request("k", "y", lasting(ttl)))
	require.Eventually(t, func() bool { // it has the other two votes, and has heard how old the server is
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.seats[2].answered.number > 0 && a.seats[3].given() && a.seats[4].given()
	}, patience, time.Millisecond)
	s.ahead[2].Add(int64(2 * ttl))
	second := await(t, p)
	require.True(t, hasEnded(first, time.Now()), "two holders, the first for %v", time.Until(first.Until()))
	release(t, second)
}

// startWithClocks starts servers whose clocks tick, and can be set by s.ahead.
func startWithClocks(t *testing.T, n int) *servers {
	s := &servers{t: t}
	var ticking sync.WaitGroup
	end := make(chan struct{})
	for i := range n {
		one, clock := redistest.StartWithClock(t, time.Now())
		s.all = append(s.all, one)
		s.proxies = append(s.proxies, redistest.NewProxy(t, one.Addr))
		ticking.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(time.Millisecond):
					clock.Set(time.Now().Add(time.Duration(s.ahead[i].Load())))
				}
			}
		})
	}
	t.Cleanup(func() { close(end); ticking.Wait() })
	s.vouch(2 * faultTTL)
	return s
}
