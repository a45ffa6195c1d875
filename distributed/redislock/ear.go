package redislock

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// idlePing is how often a subscription is tried before any TTL is known, and at least.
	idlePing = time.Second
	// busiestPing bounds the pings when leases are very short.
	busiestPing = 25 * time.Millisecond
	// syncSpread is the time given to each waiting key after a gap in the notices, so that they do not all ask at once.
	syncSpread = 50 * time.Microsecond
)

// ear is the one subscription of a Backend, for all its keys and instances.
type ear struct {
	b    *Backend
	once sync.Once // starts listening
	wg   sync.WaitGroup

	mu    sync.Mutex
	known chan struct{} // guarded by mu; closed at the first outcome, then replaced never
	err   error         // guarded by mu; nil while subscribed
}

func newEar(b *Backend) *ear { return &ear{b: b, known: make(chan struct{})} }

// open starts to listen, the first time.
func (e *ear) open() {
	e.once.Do(func() {
		e.wg.Go(func() { e.b.tr.listen(e.b.ctx, prefix+e.b.process, e.interval, e) })
	})
}

// close waits for the end of listening, which the end of the Backend's context brings about.
func (e *ear) close() {
	e.once.Do(func() {}) // never opened: it stays so
	e.wg.Wait()
}

// interval is H of the shortest TTL: a connection that is dead without a sign is noticed within two.
func (e *ear) interval() time.Duration {
	ttl := time.Duration(e.b.minTTL.Load())
	if ttl == 0 {
		return idlePing
	}
	return min(max(distributed.HeartbeatInterval(ttl), busiestPing), idlePing)
}

// subscribed implements ears. What was said before is lost, so every place looks for itself.
func (e *ear) subscribed() {
	e.outcome(nil)
	e.b.mu.Lock()
	all := make([]*attempt, 0, len(e.b.attempts))
	for _, a := range e.b.attempts {
		all = append(all, a)
	}
	e.b.mu.Unlock()
	for _, a := range all {
		spread := min(syncSpread*time.Duration(len(all)), distributed.HeartbeatInterval(a.ttl)/2)
		a.later(rand.N(spread + 1))
	}
}

// deafened implements ears.
func (e *ear) deafened(err error) {
	if e.b.ctx.Err() != nil {
		return
	}
	e.b.settings.log.Warn("redislock: subscription lost, places are served by heartbeats", "error", err)
	e.outcome(err)
}

func (e *ear) outcome(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
	select {
	case <-e.known:
	default:
		close(e.known)
	}
}

func (e *ear) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// heard implements ears. The notices:
//
//	g <mode> <attempt> <instance> <first fence> <number> <wanted> <key>   the lock is yours
//	w <attempt>                                                           somebody waits for what you hold
//	p <attempt> <ms>                                                      send a heartbeat then
//
// Notices can be lost, doubled and overtake each other; none is needed, they only make things quick.
func (e *ear) heard(notice string) {
	kind, rest, _ := strings.Cut(notice, " ")
	switch kind {
	case "g":
		e.grant(strings.SplitN(rest, " ", 7))
	case "w":
		if a := e.named(rest); a != nil {
			a.want()
		}
	case "p":
		id, ms, _ := strings.Cut(rest, " ")
		if a := e.named(id); a != nil {
			d, _ := strconv.Atoi(ms)
			a.later(time.Duration(d) * time.Millisecond)
		}
	}
}

func (e *ear) named(id string) *attempt {
	n, _ := strconv.ParseUint(id, 10, 64)
	return e.b.attempt(n)
}

// grant delivers the lock to who waits for it. A grant that nobody waits for any more is given back at once.
func (e *ear) grant(f []string) {
	if len(f) != 7 {
		return
	}
	mode, instance, key := f[0], f[2], f[6]
	count, _ := strconv.ParseUint(f[4], 10, 64)
	a := e.named(f[1])
	if a != nil && a.receive(grant{fence: parseFence(f[3]), count: count, wanted: f[5] == "1"}) {
		return
	}
	id, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return
	}
	m := distributed.Exclusive
	if mode == "s" {
		m = distributed.Shared
	}
	e.b.node(key).errands.add(stray{e.b, e.b.wire(id, key, instance, m, strayTTL)}, strayTTL, time.Now().Add(strayTTL))
}

// stray is the errand of giving back a grant of which no attempt is known.
type stray struct {
	b    *Backend
	wire []any
}

func (s stray) make() *call               { return s.b.call(leaveScript, s.wire, s.b.termsOf(strayTTL).past) }
func (s stray) answered(*call, time.Time) {}

// strayTTL is assumed of a grant whose attempt is not known any more.
const strayTTL = 5 * time.Second
