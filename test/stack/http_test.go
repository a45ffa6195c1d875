package stack_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/middleware/httpguard"
)

const (
	shopKeys    = 8
	shopWorkers = 24
)

// shop is one instance behind a real HTTP server, and what its handler has observed.
type shop struct {
	*httptest.Server
	locker  *wllock.Locker
	witness *[shopKeys]witness // of all instances
	rand    *rand.Rand         // may be used by several goroutines

	degraded, leased atomic.Int32
}

func openShop(t *testing.T, addr string, w *[shopKeys]witness, r *rand.Rand, opts ...wllock.Option) *shop {
	t.Helper()
	s := &shop{locker: lockerOn(t, redisOn(t, addr), opts...), witness: w, rand: r}
	mux := http.NewServeMux()
	guard := httpguard.New(s.locker, "product", httpguard.PathValue("id"), httpguard.WithCallOptions(wllock.WithWait(3*ttl)))
	mux.Handle("POST /buy/{id}", guard(http.HandlerFunc(s.buy)))
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Server.Close)
	return s
}

func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	key, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h, _ := wllock.HeldFrom(r.Context())
	s.witness[key].enter(h, visitor{instance: s.locker})
	time.Sleep(time.Duration(s.rand.IntN(3)) * time.Millisecond)
	switch {
	case h.Degraded():
		s.degraded.Add(1)
	case h.Err() == nil:
		s.leased.Add(1)
	}
	s.witness[key].leave(h)
	w.WriteHeader(http.StatusNoContent)
}

// answer is the response to one client.
type answer struct {
	asked  time.Time
	took   time.Duration
	status int
	hot    bool // one of few keys; else a key of its own
}

// load keeps the shops busy until ctx ends, and returns all answers in the order of the requests.
func load(ctx context.Context, shops []*shop) []answer {
	var mu sync.Mutex
	var all []answer
	var wg sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: shopWorkers}}
	defer client.CloseIdleConnections()
	for i := range shopWorkers * len(shops) {
		wg.Go(func() {
			for ctx.Err() == nil {
				s := shops[i%len(shops)]
				a := answer{asked: time.Now(), hot: s.rand.IntN(4) > 0}
				id := "own" + strconv.FormatUint(s.rand.Uint64(), 36)
				if a.hot {
					id = strconv.Itoa(s.rand.IntN(shopKeys))
				}
				resp, err := client.Post(s.URL+"/buy/"+id, "", nil)
				if err == nil {
					a.status = resp.StatusCode
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				a.took = time.Since(a.asked)
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b answer) int { return a.asked.Compare(b.asked) })
	return all
}

// redisAway is a run of two shops under load whose Redis is killed and started again without its data.
type redisAway struct {
	shops        []*shop
	witness      [shopKeys]witness
	gone, back   time.Time
	answers      []answer
	atReturn     [2]int32 // leased holds of each shop at the return
	degradedTill [2]int32 // degraded ones until two seconds after it
	stalls       []time.Duration
	plain        []time.Duration // sorted: what a request takes that needs no lock
}

func takeAway(t *testing.T, outage time.Duration, opts ...wllock.Option) *redisAway {
	t.Helper()
	r := new(redisAway)
	s, random := redistest.Start(t), testseed.Rand(t)
	for range r.atReturn {
		r.shops = append(r.shops, openShop(t, s.Addr, &r.witness, random, opts...))
	}
	stalled := stalls(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done, plain := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); r.answers = load(ctx, r.shops) }()
	go func() { defer close(plain); r.plain = plainRequests(ctx, r.shops[0]) }()
	time.Sleep(ttl)
	r.gone = time.Now()
	s.Kill()
	time.Sleep(outage)
	s.Restart()
	r.back = time.Now()
	for i, shop := range r.shops {
		r.atReturn[i] = shop.leased.Load()
	}
	time.Sleep(2 * time.Second)
	for i, shop := range r.shops {
		r.degradedTill[i] = shop.degraded.Load()
	}
	time.Sleep(time.Second)
	cancel()
	<-done
	<-plain
	r.stalls = stalled()
	return r
}

// plainRequests asks a shop for what it does not have until ctx ends. It shows what the machine is able to under the load.
func plainRequests(ctx context.Context, s *shop) (took []time.Duration) {
	client := new(http.Client)
	defer client.CloseIdleConnections()
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		if resp, err := client.Get(s.URL + "/"); err == nil {
			_ = resp.Body.Close()
		}
		took = append(took, time.Since(asked))
	}
	slices.Sort(took)
	return took
}

// excludes checks what no load excuses: who was inside beside whom, the fences, and that each request has an answer that the guard knows.
// The outage is longer than T, so no lease of before it is left when Redis begins anew.
func (r *redisAway) excludes(t *testing.T) {
	t.Helper()
	for key := range r.witness {
		require.Empty(t, r.witness[key].wrong)
	}
	for _, a := range r.answers {
		require.Contains(t, []int{http.StatusNoContent, http.StatusServiceUnavailable, http.StatusTooManyRequests}, a.status)
	}
}

// needsQuiet skips the rest of a test on a machine that stood still for so long that a lease or a wait may have run out. Call excludes
// before it. What is left are bounds of time, and that nobody was refused.
func (r *redisAway) needsQuiet(t *testing.T) {
	t.Helper()
	if s := max(quantile(r.stalls, 1), quantile(r.plain, 1)); s > ttl/4 {
		t.Skipf("too busy a machine for its bounds in time: it stood still for %v", s)
	}
}

// outages runs f with outages of different lengths: ten seconds only where there is time.
func outages(t *testing.T, f func(t *testing.T, outage time.Duration)) {
	t.Run("3s", func(t *testing.T) { f(t, 3*time.Second) })
	t.Run("10s", func(t *testing.T) {
		testscope.Longest(t, "an outage of ten seconds")
		f(t, 10*time.Second)
	})
}

// Redis is unreachable for longer than T: no request fails that may wait for longer than that, none is inside beside
// another of its own instance, leased or not, and after the return the fences continue to grow.
func TestLocalOnlyOverHTTPWhenRedisIsAway(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	outages(t, func(t *testing.T, outage time.Duration) {
		r := takeAway(t, outage, wllock.WithOutage(wllock.LocalOnly))
		r.excludes(t)
		for _, s := range r.shops {
			require.Positive(t, s.degraded.Load())
		}
		r.needsQuiet(t)
		longest := time.Duration(0)
		for _, a := range r.answers {
			require.Equal(t, http.StatusNoContent, a.status, "asked %v after Redis had gone, took %v", a.asked.Sub(r.gone), a.took)
			longest = max(longest, a.took)
		}
		require.Less(t, longest, 2*ttl+4*quantile(r.plain, 1), "T, until the outage is known")
		for i, s := range r.shops {
			t.Logf("%d answers, %d leased, %d degraded, longest %v", len(r.answers), s.leased.Load(), s.degraded.Load(), longest)
			require.Greater(t, s.leased.Load(), r.atReturn[i])
			require.Equal(t, r.degradedTill[i], s.degraded.Load(), "none is degraded 2 s after the return")
			require.Zero(t, s.locker.Stats().Total.Lost)
		}
	})
}

// The same with FailClosed: all fail fast during the outage, also those that had a place in the queue and those behind
// them. None fails 2 s after the return.
func TestFailClosedOverHTTPWhenRedisIsAway(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	outages(t, func(t *testing.T, outage time.Duration) {
		r := takeAway(t, outage)
		r.excludes(t)
		for _, s := range r.shops {
			require.Zero(t, s.degraded.Load())
		}
		var failed [2][]time.Duration
		for _, a := range r.answers {
			if a.status == http.StatusNoContent {
				continue
			}
			kind := 0
			if a.hot {
				kind = 1
			}
			failed[kind] = append(failed[kind], a.took)
		}
		for i, kind := range []string{"own keys", "hot keys"} {
			slices.Sort(failed[i])
			t.Logf("%d answers, of %s failed %d: 50%% after %v, 90%% %v, 99%% %v, 100%% %v", len(r.answers), kind, len(failed[i]),
				quantile(failed[i], .5), quantile(failed[i], .9), quantile(failed[i], .99), quantile(failed[i], 1))
		}
		r.needsQuiet(t)
		for _, a := range r.answers {
			if since := a.asked.Sub(r.back); since > 2*time.Second || a.asked.Before(r.gone.Add(-ttl/2)) {
				require.Equal(t, http.StatusNoContent, a.status, "%v after the return", since)
			}
		}
		for _, took := range failed {
			require.Less(t, quantile(took, .9), 100*time.Millisecond+4*quantile(r.plain, .9), "nine of ten fail at once")
			require.Less(t, quantile(took, 1), 2*ttl+4*quantile(r.plain, 1), "the first ones have to find out")
		}
	})
}

// TestFailClosedForImpatientCallers: the breaker also opens when no caller waits for as long as the backend takes to fail.
func TestFailClosedForImpatientCallers(t *testing.T) {
	testscope.Long(t, "kills a server")
	t.Parallel()
	for name, away := range map[string]func(*redistest.Server){"killed": (*redistest.Server).Kill, "hanging": (*redistest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			t.Cleanup(server.Resume)
			l := lockerOn(t, redisOn(t, server.Addr))
			require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
			away(server)
			gone, fast := time.Now(), 0
			for fast < 3 {
				began := time.Now()
				err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(200*time.Millisecond))
				require.ErrorIs(t, err, wllock.ErrUnavailable)
				if time.Since(began) < 20*time.Millisecond {
					fast++
				}
				require.Less(t, time.Since(gone), 5*time.Second)
			}
		})
	}
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
