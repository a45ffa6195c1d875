package testlocker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// Storm is instances that take one lock as writers, readers and holders of permits, queue, leave, downgrade, abandon and enter again,
// while things break. No holder is beside a writer by the holders' own clocks, and no more permits are held than there are. Each fence
// is above those of all writers before, and no permit's is of two callers.
type Storm struct {
	Backends []distributed.Backend // of an instance each
	TTL      time.Duration         // of leases. Every third instance's are twice as long
	// NoPermits: the backend has none.
	NoPermits bool
	// Break breaks something, and mends it: so many times, or without Rounds for as long as the storm lasts.
	Break  func(ctx context.Context, r *rand.Rand)
	Rounds int
	Turns  atomic.Int64 // so far, of all
}

// StormKey is the lock of a Storm.
const StormKey = "shop:storm:1"

const (
	stormPermits  = 2           // the limit of all permits
	stormTurns    = 10          // of writers, and of readers, until there was something to see
	stormPatience = time.Minute // with a busy machine
	stormLate     = time.Second // which an Enter may return after its deadline
)

// Run runs the storm, longer on a busy machine.
func (s *Storm) Run(t *testing.T) {
	t.Helper()
	w := s.play(t.Context(), testseed.Seed(t))
	t.Logf("%d writes, %d reads, %d downgrades, %d lost, %d abandoned, %d errors", w.writes.Load(), w.reads.Load(), w.downgrades.Load(),
		w.lost.Load(), w.abandoned.Load(), w.errors.Load())
	for _, one := range w.wrong {
		t.Error(one)
	}
	if !w.hasSeenAll() {
		t.Error("nearly nobody had the lock")
	}
	testscope.InTime(t, time.Duration(w.latest.Load()), stormLate, "an Enter, after its deadline,")
}

func (s *Storm) play(ctx context.Context, seed uint64) *stormWitness {
	w := &stormWitness{inside: map[*tenant]bool{}, drawn: map[uint64]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i, b := range s.Backends {
		u := &stormUser{of: s, w: w, b: b, name: fmt.Sprint("i", i), r: rand.New(rand.NewPCG(seed, uint64(i))), ttl: s.TTL}
		if i%3 == 2 {
			u.ttl *= 2
		}
		all.Go(func() { u.run(ctx) })
	}
	all.Go(func() { w.look(ctx) })
	lasting := testscope.Scale(20*time.Second, 3*time.Minute)
	r, began := rand.New(rand.NewPCG(seed, 99)), time.Now()
	goesOn := func(round int) bool {
		if s.Rounds > 0 {
			return round < s.Rounds
		}
		return time.Since(began) < lasting || !w.hasSeenAll() && time.Since(began) < lasting+stormPatience
	}
	for round := 0; goesOn(round); round++ {
		s.Break(ctx, r)
	}
	cancel()
	all.Wait()
	return w
}

// StormOver returns a storm of n instances that reach the servers through a proxy each, while one thing after the other breaks and
// is mended. These are servers, the ways to them, and replies to requests that contain one of the words in replies. open gets the
// address of a proxy. Without servers it is "", and nothing is broken.
func StormOver(
	t *testing.T, n int, ttl time.Duration, servers []*testproc.Server, open func(addr string) distributed.Backend, replies ...string,
) *Storm {
	s := &Storm{TTL: ttl}
	var proxies []*testproc.Proxy
	for i := range n {
		addr := ""
		if len(servers) > 0 {
			proxies = append(proxies, testproc.NewProxy(t, servers[i%len(servers)].Addr))
			addr = proxies[i].Addr
		}
		s.Backends = append(s.Backends, open(addr))
	}
	s.Break = func(ctx context.Context, r *rand.Rand) {
		pause(ctx, upTo(r, time.Second))
		if len(servers) > 0 {
			breakOne(ctx, r, ttl, proxies[r.IntN(n)], servers[r.IntN(len(servers))], replies)
		}
	}
	return s
}

// breakOne breaks one thing, and mends it.
func breakOne(ctx context.Context, r *rand.Rand, ttl time.Duration, p *testproc.Proxy, s *testproc.Server, replies []string) {
	lasts := upTo(r, ttl/2)
	switch n := r.IntN(8); {
	case n <= 1 && len(replies) > 0:
		p.LoseReply(replies[r.IntN(len(replies))])
	case n <= 3:
		p.Cut()
	case n == 4:
		p.Stall(true)
		pause(ctx, lasts)
		p.Stall(false)
	case n == 5:
		if r.IntN(8) == 0 {
			lasts *= 4 // leases and sessions expire, the leader is another one
		}
		s.Pause()
		pause(ctx, lasts)
		s.Resume()
	case n == 6:
		p.Forward(s.Addr)
	case n == 7:
		s.Kill()
		pause(ctx, lasts/2)
		s.Restart()
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// stormWitness sees all leases in use, by their own clocks.
type stormWitness struct {
	writes, reads, downgrades, lost, abandoned, errors atomic.Int64

	latest atomic.Int64 // return of an Enter after its deadline, in ns; of two at once one may be missed

	mu     sync.Mutex       // guards all below
	inside map[*tenant]bool // and the fields of these
	fence  uint64           // the greatest of a writer
	read   uint64           // the greatest of a reader
	drawn  map[uint64]bool  // of permits
	wrong  []string
}

// tenant is a lease in use.
type tenant struct {
	l      distributed.Lease
	shared bool
	permit bool
	dry    bool // it has no fence left
	name   string
}

// hasSeenAll reports that there was something to see.
func (w *stormWitness) hasSeenAll() bool {
	return w.writes.Load() >= stormTurns && w.reads.Load() >= stormTurns
}

// has reports that a lease is valid.
func (w *stormWitness) has(h *tenant, now time.Time) bool { return !hasEnded(h.l, now) }

// hasEnded reports what a lease tells its user: that it has expired, or that it was lost before, which lets others in.
func hasEnded(l distributed.Lease, now time.Time) bool {
	return gone(l) || distributed.Over(now, l.Until())
}

// gone reports whether the lease is known to be lost.
func gone(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// in notes that a lease is in use, unless it has expired. Both are judged under one mutex: a holder that has just expired is none.
func (w *stormWitness) in(h *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has(h, time.Now()) {
		w.inside[h] = true
		w.compare()
		w.draw(h)
	}
}

// look compares all the time, because a lease may become valid for longer.
func (w *stormWitness) look(ctx context.Context) {
	for ctx.Err() == nil {
		w.locked(w.compare)
		pause(ctx, time.Millisecond)
	}
}

// compare finds those whose leases are valid at one moment. The caller holds mu.
func (w *stormWitness) compare() {
	now, all, writers, permits := time.Now(), "", 0, 0
	n := 0
	for h := range w.inside {
		if !w.has(h, now) {
			continue
		}
		n++
		if !h.shared {
			writers++
		}
		if h.permit {
			permits++
		}
	}
	if (n < 2 || writers == 0) && permits <= stormPermits {
		return
	}
	for h := range w.inside {
		all += fmt.Sprintf(" %s (shared %t, permit %t) for %v;", h.name, h.shared, h.permit, h.l.Until().Sub(now))
	}
	w.wrong = append(w.wrong, "inside at once:"+all)
}

// draw draws a fence, if the lease has one and is valid afterwards. The caller holds mu.
func (w *stormWitness) draw(h *tenant) {
	fence, ok := h.l.NextFence()
	h.dry = !ok
	if !ok || !w.has(h, time.Now()) {
		return
	}
	if fence <= w.fence || !h.shared && fence <= w.read || h.permit && w.drawn[fence] {
		w.wrong = append(w.wrong, fmt.Sprintf("%s (shared %t, permit %t) drew %d after %d of a writer and %d of a reader",
			h.name, h.shared, h.permit, fence, w.fence, w.read))
	}
	if h.permit {
		w.drawn[fence] = true
	}
	if h.shared {
		w.read = max(w.read, fence)
	} else {
		w.fence = fence
	}
}

// again draws once more, if the lease was valid when its use began. A reader has one fence only.
func (w *stormWitness) again(h *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside[h] && (!h.shared || h.permit) {
		w.draw(h)
	}
}

func (w *stormWitness) isDry(h *tenant) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return h.dry
}

func (w *stormWitness) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// stormUser is one instance, which takes one lock again and again.
type stormUser struct {
	of   *Storm
	w    *stormWitness
	b    distributed.Backend
	name string
	r    *rand.Rand
	ttl  time.Duration
	prev distributed.Lease
}

func (u *stormUser) run(ctx context.Context) {
	for ctx.Err() == nil {
		u.turn(ctx)
	}
	if u.prev != nil {
		u.prev.Abandon()
	}
}

// bounded makes a call with that time.
func (u *stormUser) bounded(ctx context.Context, d time.Duration, call func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	call(ctx)
}

func (u *stormUser) turn(ctx context.Context) {
	req := distributed.Request{Key: StormKey, Instance: u.name, TTL: u.ttl, Prev: u.prev, NoWait: u.r.IntN(6) == 0}
	if u.r.IntN(2) == 0 {
		req.Mode = distributed.Shared
		if u.r.IntN(3) > 0 && !u.of.NoPermits {
			req.Limit = stormPermits
		}
	}
	u.prev = nil
	var l distributed.Lease
	var p distributed.Place
	var err error
	limit := upTo(u.r, u.ttl)
	until := time.Now().Add(limit)
	u.bounded(ctx, limit, func(ctx context.Context) { l, p, err = u.b.Enter(ctx, req) })
	u.w.latest.Store(max(u.w.latest.Load(), int64(time.Since(until))))
	if p != nil {
		l = u.wait(ctx, time.Until(until), p)
	}
	switch {
	case err != nil:
		u.w.errors.Add(1)
		pause(ctx, 5*time.Millisecond)
	case l != nil:
		u.use(ctx, &tenant{l: l, shared: req.Mode == distributed.Shared, permit: req.Limit > 0, name: u.name})
	}
}

func (u *stormUser) wait(ctx context.Context, d time.Duration, p distributed.Place) distributed.Lease {
	select {
	case l := <-p.Granted(): // nil: the place was lost
		return l
	case <-time.After(d):
	case <-ctx.Done():
	}
	u.bounded(context.Background(), time.Second, func(ctx context.Context) { _ = p.Leave(ctx) })
	return nil
}

func (u *stormUser) use(ctx context.Context, h *tenant) {
	u.w.in(h)
	u.of.Turns.Add(1)
	if h.shared {
		u.w.reads.Add(1)
	} else {
		u.w.writes.Add(1)
	}
	u.stay(ctx, h)
	u.w.locked(func() { delete(u.w.inside, h) })
	if gone(h.l) {
		u.w.lost.Add(1)
	}
	u.end(h)
}

func (u *stormUser) stay(ctx context.Context, h *tenant) {
	limit := upTo(u.r, 10*time.Millisecond)
	switch n := u.r.IntN(256); {
	case n == 0:
		pause(ctx, upTo(u.r, 2*u.ttl)) // longer than the lease, if it is not renewed
	case n <= 24:
		if !h.shared {
			u.w.locked(func() { h.shared = true })
			u.bounded(ctx, limit, func(ctx context.Context) { _ = h.l.Downgrade(ctx) })
			u.w.downgrades.Add(1)
		}
	case n <= 40 || u.w.isDry(h):
		u.bounded(ctx, u.ttl/4, func(ctx context.Context) { _ = h.l.Refill(ctx) })
	default:
		pause(ctx, limit)
	}
	u.w.again(h)
}

func (u *stormUser) end(h *tenant) {
	switch n := u.r.IntN(200); {
	case n == 0:
		h.l.Abandon()
		u.w.abandoned.Add(1)
	case n <= 50:
		u.prev = h.l
	case n <= 75:
		h.l.StartRelease()
		u.prev = h.l
	default:
		u.bounded(context.Background(), time.Second, func(ctx context.Context) { _ = h.l.Release(ctx) })
	}
}
