package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	faultTTL  = time.Second
	instances = 8
	// lateness is how long after its deadline a call may return, beside what this machine adds; see world.allowed.
	lateness = 100 * time.Millisecond
	// recovery is how long after a fault, beside T, there may be no grant.
	recovery = 2 * time.Second
	// wakeUps is how many goroutines and processes have to run one after the other until a call returns.
	wakeUps = 4
)

// fault is done to some servers, and ends.
type fault struct {
	name       string
	begin, end func(s *servers, i int)
}

var faults = []fault{
	{"killed", func(s *servers, i int) { s.all[i].Kill() }, func(s *servers, i int) { s.all[i].Restart() }},
	{"stopped", func(s *servers, i int) { s.all[i].Pause() }, func(s *servers, i int) { s.all[i].Resume() }},
	{"partitioned", func(s *servers, i int) { s.proxies[i].SetHalfOpen(true) }, func(s *servers, i int) { s.proxies[i].SetHalfOpen(false) }},
	{"slowed", func(s *servers, i int) { s.proxies[i].SetDelay(100 * time.Millisecond) }, func(s *servers, i int) { s.proxies[i].SetDelay(0) }},
	{"flushed", func(s *servers, i int) { s.all[i].Do("FLUSHALL") }, func(s *servers, i int) { s.all[i].Do("FLUSHALL") }},
	{"restarted empty", func(s *servers, i int) { s.all[i].Restart() }, func(s *servers, i int) { s.all[i].Restart() }},
	{"clock set forward", func(s *servers, i int) { s.ahead[i].Add(int64(2 * faultTTL)) }, func(*servers, int) {}},
}

// pairs are the sets of one and of two servers of five.
func pairs() (all [][]int) {
	for i := range 5 {
		all = append(all, []int{i})
		for j := range i {
			all = append(all, []int{j, i})
		}
	}
	return all
}

// One or two of five servers fail while instances compete: never two holders, nobody waits past its deadline, and soon after
// the end of the faults there are grants again.
func TestFaults(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			var s *servers
			if f.name == "clock set forward" {
				s = startWithClocks(t, 5)
			} else {
				s = startFor(t, 5, faultTTL)
			}
			rnd := testseed.Rand(t)
			one, two := rnd.IntN(5), rnd.IntN(4)
			all := testscope.Scale([][]int{{one}, {two, two + 1}}, pairs()) // one of each size, another each time
			lasts := testscope.Scale(1500*time.Millisecond, time.Minute/time.Duration(len(all)))
			w := compete(t, s)
			for _, victims := range all {
				w.during(s, f, victims, lasts)
			}
			w.stop()
		})
	}
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
	s.vouch(faultTTL)
	return s
}

// world is instances that compete for one key.
type world struct {
	t        *testing.T
	backends []*Backend
	end      chan struct{}
	wg       sync.WaitGroup
	holder   atomic.Pointer[holder]
	grants   atomic.Int64
	fence    atomic.Uint64
	stall    atomic.Int64 // the longest that this machine has kept a goroutine from running, in ns
	latest   atomic.Int64 // the latest return after a deadline, in ns
}

type holder struct {
	lease distributed.Lease
	name  string
	done  atomic.Bool
}

func compete(t *testing.T, s *servers) *world {
	w := &world{t: t, end: make(chan struct{})}
	w.wg.Go(w.measure)
	for i := range instances {
		b := s.open(WithQuorumFences())
		w.backends = append(w.backends, b)
		w.wg.Go(func() { w.contend(b, fmt.Sprint("instance", i)) })
	}
	return w
}

func (w *world) stop() {
	close(w.end)
	w.wg.Wait()
	w.t.Logf("the latest call returned %v after its deadline; the machine's longest stall was %v", time.Duration(w.latest.Load()), time.Duration(w.stall.Load()))
}

// measure notes how late the machine runs a goroutine whose time has come.
func (w *world) measure() {
	const pause = time.Millisecond
	for {
		asleep := time.Now()
		select {
		case <-w.end:
			return
		case <-time.After(pause):
			w.stall.Store(max(w.stall.Load(), int64(time.Since(asleep)-pause)))
		}
	}
}

// allowed is a bound on real time on this machine.
func (w *world) allowed(d time.Duration) time.Duration {
	return d + wakeUps*time.Duration(w.stall.Load())
}

// returned checks that a call has returned not long after its deadline.
func (w *world) returned(end time.Time) {
	late := time.Since(end)
	for old := w.latest.Load(); int64(late) > old && !w.latest.CompareAndSwap(old, int64(late)); old = w.latest.Load() {
	}
	if late >= w.allowed(lateness) {
		time.Sleep(lateness) // for the measurement of a stall that we woke up from first
		assert.Less(w.t, late, w.allowed(lateness))
	}
}

func (w *world) contend(b *Backend, name string) {
	for {
		select {
		case <-w.end:
			return
		default:
			w.once(b, name)
		}
	}
}

// once takes the lock, and checks that nobody else has it as long as the lease says so.
func (w *world) once(b *Backend, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*faultTTL)
	defer cancel()
	end, _ := ctx.Deadline()
	l, p, err := b.Enter(ctx, distributed.Request{Key: "hot", Instance: name, TTL: faultTTL})
	if p != nil {
		select {
		case l = <-p.Granted():
		case <-ctx.Done():
			w.returned(end)
			late, stop := context.WithTimeout(context.Background(), faultTTL)
			_ = p.Leave(late)
			stop()
			return
		}
	}
	w.returned(end)
	if l == nil {
		if err != nil && !errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, distributed.ErrClosed) {
			assert.ErrorIs(w.t, err, context.DeadlineExceeded)
		}
		time.Sleep(time.Millisecond)
		return
	}
	w.hold(l, name)
	late, stop := context.WithTimeout(context.Background(), faultTTL)
	defer stop()
	_ = l.Release(late)
}

// hold works while the lease is valid. A lease that ends leaves the lock to others.
func (w *world) hold(l distributed.Lease, name string) {
	if distributed.Over(time.Now(), l.Until()) {
		return
	}
	me := &holder{lease: l, name: name}
	if before := w.holder.Swap(me); before != nil && !before.done.Load() && !hasEnded(before.lease, time.Now()) {
		w.t.Errorf("two holders: %s, and %s until %v from now", name, before.name, time.Until(before.lease.Until()))
	}
	w.grants.Add(1)
	w.draw(l)
	time.Sleep(2 * time.Millisecond)
	me.done.Store(true)
}

// draw draws fences, which must grow in the order of the holders.
func (w *world) draw(l distributed.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), faultTTL/4)
	defer cancel()
	if l.Refill(ctx) != nil {
		return
	}
	last := w.fence.Load()
	n, ok := l.NextFence()
	if ok && !hasEnded(l, time.Now()) {
		assert.Greater(w.t, n, last)
		w.fence.Store(n)
	}
}

// during lets the fault last, and then waits for grants.
func (w *world) during(s *servers, f fault, victims []int, lasts time.Duration) {
	w.t.Helper()
	before := w.grants.Load()
	for _, i := range victims {
		f.begin(s, i)
	}
	time.Sleep(lasts)
	amid := w.grants.Load() - before
	for _, i := range victims {
		f.end(s, i)
	}
	assert.Positive(w.t, amid, "%v %s: no grant while a majority is there", victims, f.name)
	from := w.grants.Load()
	ended := time.Now()
	for ; w.grants.Load() == from; time.Sleep(5 * time.Millisecond) {
		if time.Since(ended) > w.allowed(faultTTL+recovery) {
			w.dump(s)
			w.t.Errorf("%v %s: no grant after the fault", victims, f.name)
			break
		}
	}
	w.t.Logf("%v %s: %d grants, the first after it within %v", victims, f.name, amid, time.Since(ended).Round(time.Millisecond))
	time.Sleep(faultTTL * 3 / 2) // until all count again
}

// dump logs what everybody knows, for a failure.
func (w *world) dump(s *servers) {
	for i, one := range s.all {
		w.t.Logf("server %d: owner %q for %v ms, queue %q, mark %q", i, one.Do("GET", "hot"), one.Do("PTTL", "hot"), one.Do("ZRANGE", helper("q:", "hot"), 0, -1), one.Do("GET", markOf("")))
	}
	for _, b := range w.backends {
		for _, a := range b.attempts.list() {
			a.mu.Lock()
			w.t.Logf("%s state %d splits %d", a.token, a.state, a.splits)
			for i := range a.seats {
				x := &a.seats[i]
				w.t.Logf("  %c owner %s %s rank %d rest %v votes %t born %v ago, error %v, busy %t void %t", x.standing.kind, x.standing.mode, x.standing.owner,
					x.standing.rank, x.standing.rest, x.given(), time.Since(x.born), x.err, x.busy, x.void)
			}
			a.mu.Unlock()
		}
	}
}

// Two servers that vote for the holder lose their data, and a third has never heard of it: the three are a majority that would let
// in another. They count only after the longest TTL.
func TestServersThatForgetAreNoMajority(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*redistest.Server){
		"flushed":   func(one *redistest.Server) { one.Do("FLUSHALL") },
		"restarted": func(one *redistest.Server) { one.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			s := startFor(t, 5, ttl)
			holder, other := s.open(), s.open()
			for _, p := range s.proxies[3:] {
				p.SetHalfOpen(true) // 3 and 4 do not hear of the holder
			}
			req := distributed.Request{Key: "k", Instance: "a", TTL: ttl}
			l, _, err := holder.Enter(t.Context(), req)
			require.NoError(t, err)
			require.NotNil(t, l)
			l.Abandon() // or a renewal would notice what was forgotten, and release the votes that are left
			held := func() bool {
				select {
				case <-l.Lost():
					return false
				default:
					return !distributed.Over(time.Now(), l.Until())
				}
			}
			for _, p := range s.proxies[3:] {
				p.SetHalfOpen(false)
			}
			for _, one := range s.all[1:3] {
				forget(one)
			}
			req.Instance, req.NoWait = "b", true
			for held() {
				got, _, err := other.Enter(t.Context(), req)
				if got != nil && held() {
					t.Fatal("two holders")
				}
				require.True(t, got != nil || err != nil)
				time.Sleep(20 * time.Millisecond)
			}
			require.Eventually(t, func() bool {
				got, _, _ := other.Enter(t.Context(), req)
				return got != nil
			}, ttl+patience, 20*time.Millisecond, "and after that they count")
		})
	}
}
