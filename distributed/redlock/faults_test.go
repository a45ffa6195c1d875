package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	faultTTL  = time.Second
	instances = 8
	// recovery is how long after a fault, beside T, there may be no grant.
	recovery = 4 * time.Second
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

// storm is one of instances with links of their own to all servers, two at a backend.
func (s *servers) storm(ttl time.Duration) (storm *testlocker.Storm, links [][]*redistest.Proxy) {
	storm = &testlocker.Storm{TTL: ttl, NoPermits: true}
	for range instances / 2 {
		b, own := ownLinks(s.t, s)
		storm.Backends, links = append(storm.Backends, b, b), append(links, own)
	}
	return storm, links
}

// One or two of five servers fail while instances compete: never two holders, there are grants meanwhile, and soon after the end of the
// faults.
func TestFaults(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			var s *servers
			if f.name == "clock set forward" {
				s = startWithClocks(t, 5)
			} else {
				s = startFor(t, 5, 2*faultTTL) // every third instance's
			}
			rnd := testseed.Rand(t)
			one, two := rnd.IntN(5), rnd.IntN(4)
			all := testscope.Scale([][]int{{one}, {two, two + 1}}, pairs()) // one of each size, another each time
			lasts := testscope.Scale(2*time.Second, time.Minute/time.Duration(len(all)))
			storm, _ := s.storm(faultTTL)
			storm.Rounds = len(all)
			storm.Break = func(context.Context, *rand.Rand) {
				f.during(t, s, storm, all[0], lasts)
				all = all[1:]
			}
			storm.Run(t)
		})
	}
}

// during lets the fault last, and then waits for grants.
func (f fault) during(t *testing.T, s *servers, storm *testlocker.Storm, victims []int, lasts time.Duration) {
	before := storm.Turns.Load()
	for _, i := range victims {
		f.begin(s, i)
	}
	began := time.Now()
	time.Sleep(lasts)
	for storm.Turns.Load() == before && time.Since(began) < patience { // some hold the lock for long
		time.Sleep(5 * time.Millisecond)
	}
	amid := storm.Turns.Load() - before
	for _, i := range victims {
		f.end(s, i)
	}
	assert.Positive(t, amid, "%v %s: no grant while a majority is there", victims, f.name)
	from, ended := storm.Turns.Load(), time.Now()
	for storm.Turns.Load() == from && time.Since(ended) < patience {
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("%v %s: %d grants, the first after it within %v", victims, f.name, amid, time.Since(ended).Round(time.Millisecond))
	testscope.InTime(t, time.Since(ended), faultTTL+recovery, "the first grant after the fault")
	time.Sleep(faultTTL * 5 / 2) // until all count again
}

const (
	stormTTL  = 600 * time.Millisecond
	stormFlaw = stormTTL / 2 // what happens to a link or a server lasts so long at most, and W is as long
)

func upTo(rnd *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(d) + 1))
}

// TestFaultsInAnyOrder: each link delays, loses and cuts what it carries, servers stop, and few enough of them forget.
func TestFaultsInAnyOrder(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	for _, n := range testscope.Scale([]int{5}, []int{3, 5}) {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			s := startFor(t, n, 2*stormTTL)
			storm, links := s.storm(stormTTL)
			var ends sync.WaitGroup
			var next time.Time
			storm.Break = func(_ context.Context, rnd *rand.Rand) {
				if time.Now().After(next) {
					s.forget(rnd)
					next = time.Now().Add(4*stormTTL + stormFlaw + upTo(rnd, 4*stormTTL)) // when these count again
				}
				i := rnd.IntN(n)
				end := s.all[i].Resume
				if rnd.IntN(4) == 0 {
					s.all[i].Pause() // what was sent meanwhile is done later
				} else {
					end = disturb(rnd, links[rnd.IntN(len(links))][i])
				}
				lasts := upTo(rnd, stormFlaw)
				ends.Go(func() { time.Sleep(lasts); end() })
				time.Sleep(upTo(rnd, stormFlaw))
			}
			storm.Run(t)
			ends.Wait()
		})
	}
}

// disturb does something to a link, and returns what ends it. Faults overlap.
func disturb(rnd *rand.Rand, p *redistest.Proxy) (end func()) {
	switch rnd.IntN(5) {
	case 0:
		p.SetDelay(upTo(rnd, stormFlaw/2))
		return func() { p.SetDelay(0) }
	case 1:
		p.SetHalfOpen(true)
		return func() { p.SetHalfOpen(false) }
	case 2:
		p.SetSilent(true)
		return func() { p.SetSilent(false) }
	case 3:
		scripts := []string{enterScript.SHA, heartbeatScript.SHA, yieldScript.SHA, renewScript.SHA, leaveScript.SHA, fenceScript.SHA, downgradeScript.SHA}
		p.SwallowReply(scripts[rnd.IntN(len(scripts))])
		return func() { p.SwallowReply(""); p.Cut() }
	}
	return p.Cut
}

// forget has as many servers lose their data as may.
func (s *servers) forget(rnd *rand.Rand) {
	for _, i := range rnd.Perm(len(s.all))[:len(s.all)/2] {
		if rnd.IntN(2) == 0 {
			s.all[i].Restart()
		} else {
			c := s.all[i].Client()
			_ = c.FlushAll(context.Background()).Err() // not done in time: later, which is why the pause is long
			_ = c.Close()
		}
	}
}

func openURL(url string) (distributed.Backend, error) { return Open(url) }

// url names the servers for a process that reaches some of them, from one on.
func (s *servers) url(from, reaches int) string {
	var hosts []string
	for j, one := range s.all {
		if n := len(s.all); (j-from%n+n)%n < reaches {
			hosts = append(hosts, one.Addr)
		} else {
			hosts = append(hosts, fmt.Sprint("127.0.0.1:", j+1)) // nobody listens there
		}
	}
	return "redlock://" + strings.Join(hosts, ",") + "?fences=quorum"
}

func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	t.Parallel()
	testlocker.Processes{URL: start(t, 3).url(0, 3), Open: openURL, TTL: faultTTL, NoPermits: true}.Run(t)
}

// TestAFleetNeverHoldsTwice: fewer than half of the servers stand still or lose their data meanwhile. Where each process reaches three
// servers, two majorities share one or two of them.
func TestAFleetNeverHoldsTwice(t *testing.T) {
	testscope.Long(t, "kills and stops processes")
	three := map[string]int{"three of five servers": 3}
	for name, reaches := range testscope.Scale(three, map[string]int{"three of five servers": 3, "all servers": 5}) {
		t.Run(name, func(t *testing.T) {
			s := startFor(t, 5, stormTTL)
			testlocker.Fleet{
				TTL: stormTTL, Lanes: 3, URL: func(i int) string { return s.url(i, reaches) },
				Disturb: func(ctx context.Context, rnd *rand.Rand) {
					for _, i := range rnd.Perm(len(s.all))[:reaches/2] {
						c := s.all[i].Client()
						_ = c.FlushAll(context.Background()).Err()
						_ = c.Close()
					}
					for counts := time.Now().Add(3*stormTTL + upTo(rnd, 2*stormTTL)); time.Now().Before(counts); { // others forget then
						one := s.all[rnd.IntN(len(s.all))]
						one.Pause()
						time.Sleep(upTo(rnd, stormTTL/2))
						one.Resume()
						time.Sleep(upTo(rnd, stormTTL/2))
					}
				},
			}.Run(t)
		})
	}
}

// hasEnded reports what a lease tells its user: that it has expired, or that it was lost before, which lets others in.
func hasEnded(l distributed.Lease, now time.Time) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return distributed.Over(now, l.Until())
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
	s.vouch(2 * faultTTL)
	return s
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
			l := leaseOf(t, holder, request("k", "a", lasting(ttl)))
			l.Abandon() // or a renewal would notice what was forgotten, and release the votes that are left
			for _, p := range s.proxies[3:] {
				p.SetHalfOpen(false)
			}
			for _, one := range s.all[1:3] {
				forget(one)
			}
			req := request("k", "b", lasting(ttl), noWait)
			for !hasEnded(l, time.Now()) {
				got, _, err := other.Enter(t.Context(), req)
				require.True(t, got == nil || hasEnded(l, time.Now()), "two holders")
				require.True(t, got != nil || err != nil)
				if got != nil { // it ended while we asked, and gave up the vote of the first server
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			require.Eventually(t, func() bool {
				got, _, _ := other.Enter(t.Context(), req)
				return got != nil
			}, ttl+patience, 20*time.Millisecond, "and after that they count")
		})
	}
}
