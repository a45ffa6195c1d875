package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	huntTTL     = 600 * time.Millisecond
	huntClients = 4
	huntFlaw    = huntTTL / 2 // what happens to a link or a server lasts so long at most, and W is as long
)

// TestRandomFaults: writers and readers do all that leases and places can, while each link delays, loses and cuts what it carries,
// servers stop, and few enough of them forget. A witness in this process sees at most one writer, or readers, whose
// leases are valid, and fences of writers that grow.
func TestRandomFaults(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	lasts := testscope.Scale(3*time.Second, time.Minute)
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			rnd := testseed.Rand(t)
			h := &hunt{t: t, s: startFor(t, n, huntTTL), end: make(chan struct{})}
			for i := range huntClients {
				h.client(fmt.Sprint("client", i), rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64())))
			}
			h.background(rnd.Uint64(), h.disturb)
			h.background(rnd.Uint64(), h.forget)
			h.background(0, func(*rand.Rand) { h.witness.look(t); time.Sleep(time.Millisecond) })
			time.Sleep(lasts)
			close(h.end)
			h.wg.Wait()
			w := &h.witness
			t.Logf("%d writers, %d readers, %d lost, %d fences, %d downgrades; %d faults, %d times a server forgot", w.writers, w.readers, w.lost, w.fences, w.downgrades, h.faults, h.forgot)
		})
	}
}

type hunt struct {
	t       *testing.T
	s       *servers
	links   [][]*redistest.Proxy // by client and server
	end     chan struct{}
	wg      sync.WaitGroup
	witness huntWitness
	faults  int // of disturb alone
	forgot  int // of forget alone
}

func (h *hunt) ended() bool {
	select {
	case <-h.end:
		return true
	default:
		return false
	}
}

func (h *hunt) background(seed uint64, f func(*rand.Rand)) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	h.wg.Go(func() {
		for !h.ended() {
			f(rnd)
		}
	})
}

// client competes through links of its own.
func (h *hunt) client(name string, rnd *rand.Rand) {
	var clients []redis.UniversalClient
	var links []*redistest.Proxy
	for _, one := range h.s.all {
		p := redistest.NewProxy(h.t, one.Addr)
		links = append(links, p)
		clients = append(clients, one.Client(func(o *redis.Options) { o.Addr = p.Addr }))
	}
	h.links = append(h.links, links)
	b, err := New(clients, WithQuorumFences())
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, b.Close()) })
	for i := range 2 {
		h.background(rnd.Uint64(), func(rnd *rand.Rand) { h.once(b, fmt.Sprint(name, ".", i), rnd) })
	}
}

// disturb does something to one link, or to all of one server, and ends it after a while; faults overlap.
func (h *hunt) disturb(rnd *rand.Rand) {
	c, i := rnd.IntN(len(h.links)), rnd.IntN(len(h.s.all))
	one, p, lasts := h.s.all[i], h.links[c][i], upTo(rnd, huntFlaw)
	begin, end := func() {}, func() {}
	switch rnd.IntN(7) {
	case 0:
		d := upTo(rnd, huntFlaw/2)
		begin, end = func() { p.SetDelay(d) }, func() { p.SetDelay(0) }
	case 1:
		begin, end = func() { p.SetHalfOpen(true) }, func() { p.SetHalfOpen(false) }
	case 2:
		begin, end = func() { p.SetSilent(true) }, func() { p.SetSilent(false) }
	case 3:
		scripts := []string{enterScript.SHA, heartbeatScript.SHA, yieldScript.SHA, renewScript.SHA, leaveScript.SHA, fenceScript.SHA, downgradeScript.SHA}
		begin, end = func() { p.SwallowReply(scripts[rnd.IntN(len(scripts))]) }, func() { p.SwallowReply(""); p.Cut() }
	case 4:
		end = p.Cut
	case 5, 6:
		begin, end = one.Pause, one.Resume // what was sent meanwhile is done later
	}
	begin()
	h.faults++
	h.wg.Go(func() { time.Sleep(lasts); end() })
	time.Sleep(upTo(rnd, huntFlaw))
}

// forget has a server lose its data; the next does so when it counts again. With five servers two lose theirs.
func (h *hunt) forget(rnd *rand.Rand) {
	victims := rnd.Perm(len(h.s.all))[:len(h.s.all)/2]
	for _, i := range victims {
		if rnd.IntN(2) == 0 {
			h.s.all[i].Restart()
		} else {
			c := h.s.all[i].Client()
			_ = c.FlushAll(context.Background()).Err() // not done in time: later, which is why the pause is long
			_ = c.Close()
		}
		h.forgot++
	}
	time.Sleep(2*huntTTL + huntFlaw + upTo(rnd, 4*huntTTL))
}

// once enters, works, and ends in one of the possible ways.
func (h *hunt) once(b *Backend, name string, rnd *rand.Rand) {
	req := distributed.Request{Key: "k", Instance: name, TTL: huntTTL, NoWait: rnd.IntN(6) == 0}
	if rnd.IntN(3) == 0 {
		req.Mode = distributed.Shared
	}
	for l := h.enter(b, req, rnd); l != nil; l = h.enter(b, req, rnd) {
		m := h.witness.begin(h.t, l, name, req.Mode)
		h.work(m, rnd)
		h.witness.done(m)
		ctx, cancel := context.WithTimeout(context.Background(), upTo(rnd, huntTTL))
		switch req.Prev = nil; rnd.IntN(5) {
		case 0, 1:
			req.Prev = l
		case 2:
			l.Abandon()
		default:
			_ = l.Release(ctx)
		}
		cancel()
		if h.ended() {
			return
		}
	}
	time.Sleep(upTo(rnd, 10*time.Millisecond))
}

func (h *hunt) enter(b *Backend, req distributed.Request, rnd *rand.Rand) distributed.Lease {
	ctx, cancel := context.WithTimeout(context.Background(), upTo(rnd, 4*huntTTL))
	defer cancel()
	l, p, _ := b.Enter(ctx, req)
	if p == nil {
		return l
	}
	select {
	case l = <-p.Granted():
		return l
	case <-ctx.Done():
	case <-h.end:
	}
	ctx, cancel = context.WithTimeout(context.Background(), huntTTL)
	defer cancel()
	_ = p.Leave(ctx)
	return nil
}

func (h *hunt) work(m *huntHolder, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), huntTTL)
	defer cancel()
	for range rnd.IntN(4) {
		switch rnd.IntN(4) {
		case 0:
			time.Sleep(upTo(rnd, huntTTL))
		case 1, 2:
			if m.lease.Refill(ctx) == nil {
				h.witness.draw(h.t, m)
			}
		case 3:
			if d, ok := distributed.As[distributed.Downgrader](m.lease); ok && rnd.IntN(3) == 0 {
				h.witness.share(m)
				_ = d.Downgrade(ctx)
			}
		}
	}
}

// huntWitness knows who works at this moment.
type huntWitness struct {
	mu                                         sync.Mutex
	all                                        map[*huntHolder]bool // guarded by mu
	fence                                      uint64               // guarded by mu; the last of a writer
	writers, readers, lost, fences, downgrades int                  // guarded by mu
}

type huntHolder struct {
	lease  distributed.Lease
	name   string
	shared bool // guarded by huntWitness.mu
}

func (w *huntWitness) begin(t *testing.T, l distributed.Lease, name string, mode distributed.Mode) *huntHolder {
	m := &huntHolder{lease: l, name: name, shared: mode == distributed.Shared}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*huntHolder]bool{}
	}
	w.all[m] = true
	if m.shared {
		w.readers++
	} else {
		w.writers++
	}
	w.compare(t)
	return m
}

// look compares who works now.
func (w *huntWitness) look(t *testing.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compare(t)
}

// compare finds two whose leases are valid at one moment. The caller holds mu.
func (w *huntWitness) compare(t *testing.T) {
	now := time.Now()
	valid, writer := 0, (*huntHolder)(nil)
	for m := range w.all {
		if !hasEnded(m.lease, now) {
			valid++
			if !m.shared {
				writer = m
			}
		}
	}
	if valid > 1 && writer != nil {
		for m := range w.all {
			t.Errorf("too many holders: %s shared %t, for %v", m.name, m.shared, m.lease.Until().Sub(now))
		}
	}
}

func (w *huntWitness) share(m *huntHolder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.shared = true
	w.downgrades++
}

func (w *huntWitness) draw(t *testing.T, m *huntHolder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := m.lease.NextFence()
	if !ok || m.shared || hasEnded(m.lease, time.Now()) {
		return
	}
	w.fences++
	if n <= w.fence {
		t.Errorf("%s: fence %d after %d", m.name, n, w.fence)
	}
	w.fence = n
}

func (w *huntWitness) done(m *huntHolder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if hasEnded(m.lease, time.Now()) {
		w.lost++
	}
	delete(w.all, m)
}

func upTo(rnd *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(d) + 1))
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
