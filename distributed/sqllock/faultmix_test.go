package sqllock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// Instances take one lock, as writers and readers, queue, leave, downgrade, abandon and enter again, while statements are lost before
// and after the database has carried them out, are rolled back as victims of deadlocks, connections are cut and stalled, and the
// server stops, dies and comes back: nobody is beside a writer by the holders' own clocks, no more permits are held than there are, each
// fence is above those of all writers before, and no permit's is of two callers, and every call is answered by its deadline.
func TestFaultsInAnyOrder(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	onEach(t, false, mixFaults)
}

func mixFaults(t *testing.T, d database) {
	t.Helper()
	seed := testseed.Seed(t)
	w := &witness{}
	ctx, cancel := context.WithTimeout(t.Context(), 4*mixTime)
	defer cancel()
	var proxies []*testproc.Proxy
	var all sync.WaitGroup
	for i := range 5 {
		b, proxy := faultyBackend(t, d, rand.New(rand.NewPCG(seed, uint64(100+i))))
		proxies = append(proxies, proxy)
		u := &faultUser{w: w, b: b, name: fmt.Sprint("i", i), r: rand.New(rand.NewPCG(seed, uint64(i))), ttl: faultTTL}
		if i%3 == 2 {
			u.ttl = 2 * faultTTL
		}
		all.Go(func() { u.run(ctx) })
	}
	r := rand.New(rand.NewPCG(seed, 99))
	for start := time.Now(); ctx.Err() == nil && (time.Since(start) < mixTime || !w.hasSeenAll()); { // a busy machine takes longer
		breakServer(ctx, r, d.server, proxies)
	}
	cancel()
	all.Wait()
	t.Logf("%d writes, %d reads, %d downgrades, %d lost, %d abandoned, %d errors, slowest call %v after its deadline", w.writes.Load(), w.reads.Load(),
		w.downgrades.Load(), w.lost.Load(), w.abandoned.Load(), w.errors.Load(), time.Duration(w.late.Load()).Round(time.Millisecond))
	for _, one := range w.wrong {
		t.Error(one)
	}
	require.True(t, w.hasSeenAll())
	require.Less(t, time.Duration(w.late.Load()), slack, "a call was answered after its deadline")
	start := time.Now()
	release(t, acquired(t, d.backend(t, nil), request("k", safely)))
	within(t, "a grant after all faults", time.Since(start), 2*faultTTL+distributed.HeartbeatInterval(2*faultTTL))
}

// mixTime is how long things are broken.
var mixTime = testscope.Scale(12*time.Second, 3*time.Minute)

// faultyBackend breaks one statement in fifty, and reaches a server through a proxy.
func faultyBackend(t *testing.T, d database, r *rand.Rand) (*sqllock.Backend, *testproc.Proxy) {
	t.Helper()
	w := &wire{Connector: d.connector(), dialect: d.dialect}
	var proxy *testproc.Proxy
	if d.server != nil {
		proxy = testproc.NewProxy(t, d.server.Addr)
		w.Connector = connectorOf(d.server.URLAt(proxy.Addr))
	}
	w.breaksBy(func(kind string) fault {
		switch n := r.IntN(150); {
		case n == 0:
			return lostRequest
		case n == 1:
			return lostReply
		case n == 2 && (kind != "BEGIN"):
			return collides
		}
		return passes
	})
	return backendOn(t, poolOf(t, w), d.dialect), proxy
}

// breakServer breaks something after a while, and mends it.
func breakServer(ctx context.Context, r *rand.Rand, server *dbtest.Server, proxies []*testproc.Proxy) {
	sleep(ctx, time.Duration(r.Int64N(int64(time.Second))))
	if server == nil {
		return
	}
	p, long := proxies[r.IntN(len(proxies))], time.Duration(r.Int64N(int64(faultTTL/2)))
	switch r.IntN(8) {
	case 0, 1, 2:
		p.Cut()
	case 3, 4:
		p.Stall(true)
		sleep(ctx, long)
		p.Stall(false)
	case 5, 6:
		if r.IntN(4) == 0 {
			long *= 4 // leases expire
		}
		server.Pause()
		sleep(ctx, long)
		server.Resume()
	case 7:
		server.Kill()
		sleep(ctx, long/2)
		server.Restart()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// witness sees all leases that are held, by their own clocks.
type witness struct {
	writes, reads, downgrades, lost, abandoned, errors atomic.Int64
	late                                               atomic.Int64 // the longest time from a deadline to the answer

	mu      sync.Mutex
	holders map[*tenant]bool // guarded by mu
	fence   uint64           // guarded by mu; the greatest of a writer
	read    uint64           // guarded by mu; the greatest of a reader
	drawn   map[uint64]bool  // guarded by mu; of permits
	wrong   []string         // guarded by mu
}

// mixPermits is the limit of all permits of the mix.
const mixPermits = 2

// hasSeenAll reports that there was something to see.
func (w *witness) hasSeenAll() bool { return w.writes.Load() > 0 && w.reads.Load() > 0 }

// tenant is a lease in use.
type tenant struct {
	l      distributed.Lease
	shared bool
	permit bool
	name   string
}

// in notes that a lease is in use, unless it has expired. Both are judged under one mutex: a holder that has just expired is none.
func (w *witness) in(h *tenant, fence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holders == nil {
		w.holders, w.drawn = map[*tenant]bool{}, map[uint64]bool{}
	}
	now := time.Now()
	if distributed.Over(now, h.l.Until()) {
		return
	}
	permits := 0
	for other := range w.holders {
		if h.permit && other.permit && !distributed.Over(now, other.l.Until()) {
			permits++
		}
		if !(h.shared && other.shared) && !distributed.Over(now, other.l.Until()) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s (shared %v) beside %s (shared %v), which holds for another %v",
				h.name, h.shared, other.name, other.shared, time.Until(other.l.Until())))
		}
	}
	if permits >= mixPermits {
		w.wrong = append(w.wrong, fmt.Sprintf("%s has a permit beside %d others", h.name, permits))
	}
	w.holders[h] = true
	w.drew(h, fence)
}

// drew notes a fence. The caller holds mu.
func (w *witness) drew(h *tenant, fence uint64) {
	if fence <= w.fence || !h.shared && fence <= w.read {
		w.wrong = append(w.wrong, fmt.Sprintf("%s (shared %v) drew %d after %d of a writer and %d of a reader", h.name, h.shared, fence, w.fence, w.read))
	}
	if h.permit {
		if w.drawn[fence] {
			w.wrong = append(w.wrong, fmt.Sprintf("fence %d is of two callers", fence))
		}
		w.drawn[fence] = true
	}
	if h.shared {
		w.read = max(w.read, fence)
	} else {
		w.fence = fence
	}
}

func (w *witness) again(h *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holders[h] {
		return
	}
	fence, ok := h.l.NextFence()
	if ok && (!h.shared || h.permit) && !distributed.Over(time.Now(), h.l.Until()) {
		w.drew(h, fence)
	}
}

func (w *witness) share(h *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.shared = true
}

func (w *witness) out(h *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holders, h)
}

// faultUser is one instance, which takes one lock again and again.
type faultUser struct {
	w    *witness
	b    *sqllock.Backend
	name string
	r    *rand.Rand
	ttl  time.Duration
	prev distributed.Lease
}

func (u *faultUser) run(ctx context.Context) {
	for ctx.Err() == nil {
		u.turn(ctx)
	}
	if u.prev != nil {
		u.prev.Abandon()
	}
}

// bounded makes a call with that time, and notes how long after its end the answer came.
func (u *faultUser) bounded(ctx context.Context, d time.Duration, call func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	call(ctx)
	if end, _ := ctx.Deadline(); int64(time.Since(end)) > u.w.late.Load() {
		u.w.late.Store(int64(time.Since(end)))
	}
}

func (u *faultUser) turn(ctx context.Context) {
	req := distributed.Request{Key: "k", Instance: u.name, TTL: u.ttl, Prev: u.prev, NoWait: u.r.IntN(6) == 0}
	if u.r.IntN(2) == 0 {
		req.Mode = distributed.Shared
		if u.r.IntN(3) > 0 {
			req.Limit = mixPermits
		}
	}
	u.prev = nil
	var l distributed.Lease
	var p distributed.Place
	var err error
	limit := time.Duration(u.r.Int64N(int64(faultTTL)))
	until := time.Now().Add(limit)
	u.bounded(ctx, limit, func(ctx context.Context) { l, p, err = u.b.Enter(ctx, req) })
	switch {
	case err != nil:
		u.w.errors.Add(1)
		sleep(ctx, 5*time.Millisecond)
	case p != nil:
		if l = u.wait(ctx, until, p); l == nil {
			return
		}
		fallthrough
	default:
		u.use(ctx, &tenant{l: l, shared: req.Mode == distributed.Shared, permit: req.Limit > 0, name: u.name})
	}
}

func (u *faultUser) wait(ctx context.Context, until time.Time, p distributed.Place) distributed.Lease {
	select {
	case l := <-p.Granted():
		return l
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
	}
	u.bounded(context.Background(), time.Second, func(ctx context.Context) { _ = p.Leave(ctx) })
	return nil
}

func (u *faultUser) use(ctx context.Context, h *tenant) {
	fence, ok := h.l.NextFence()
	if !ok {
		u.w.errors.Add(1)
	}
	u.w.in(h, fence)
	if h.shared {
		u.w.reads.Add(1)
	} else {
		u.w.writes.Add(1)
	}
	u.stay(ctx, h)
	u.w.out(h)
	select {
	case <-h.l.Lost():
		u.w.lost.Add(1)
	default:
	}
	u.end(h)
}

func (u *faultUser) stay(ctx context.Context, h *tenant) {
	limit := time.Duration(u.r.Int64N(int64(10 * time.Millisecond)))
	switch u.r.IntN(64) {
	case 0:
		sleep(ctx, time.Duration(u.r.Int64N(int64(2*faultTTL)))) // longer than the lease, if it is not renewed
	case 1, 2, 3, 4, 5, 6, 7, 8:
		if d, ok := distributed.As[distributed.Downgrader](h.l); ok && !h.shared {
			u.w.share(h)
			u.bounded(ctx, limit, func(ctx context.Context) { _ = d.Downgrade(ctx) })
			u.w.downgrades.Add(1)
		}
	case 9, 10, 11, 12:
		u.bounded(ctx, limit, func(ctx context.Context) { _ = h.l.Refill(ctx) })
	default:
		sleep(ctx, limit)
	}
	u.w.again(h)
}

func (u *faultUser) end(h *tenant) {
	switch u.r.IntN(40) {
	case 0:
		h.l.Abandon()
		u.w.abandoned.Add(1)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
		u.prev = h.l
	case 11, 12, 13, 14, 15:
		h.l.(distributed.AsyncLease).StartRelease()
		u.prev = h.l
	default:
		u.bounded(context.Background(), time.Second, func(ctx context.Context) { _ = h.l.Release(ctx) })
	}
}
