package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
)

// Backend is the distributed tier on Redis. It is safe for concurrent use; make one per process and server and give
// it to as many Lockers as there are.
type Backend struct {
	settings settings
	name     string // for String: no secrets
	process  string // our id in tokens and in the channel's name
	terms    atomic.Pointer[terms]
	tr       transport
	home     *node // of a single server, and of what is asked before a cluster is known
	ear      *ear
	probes   chan struct{} // capacity 1: the right to probe

	last   atomic.Uint64 // attempt
	seen   atomic.Uint64 // the largest fence reserved here
	rtt    atomic.Int64  // the shortest exchange measured, in ns; 0 until the first probe
	minTTL atomic.Int64  // the shortest TTL asked for, in ns
	proven atomic.Bool   // a probe has succeeded
	single atomic.Bool   // no cluster

	ctx    context.Context // ends with Close: nothing is asked again
	cancel context.CancelFunc

	mu       sync.Mutex
	nodes    map[string]*node    // guarded by mu; of a cluster, by address
	attempts map[uint64]*attempt // guarded by mu; all that are asked for, waited for or held
	sweepAt  int                 // guarded by mu; the size at which attempts is swept
	closed   bool                // guarded by mu
	calls    sync.WaitGroup      // calls of Enter under way; Add under mu, unless closed
}

// New returns a Backend on the server, sentinel group or cluster that client is connected to. It takes the client's
// settings for connections of its own and leaves the client alone; of a sentinel client the original must stay
// open, for it finds the primary. New does not connect: Ping or the first Enter does.
func New(client redis.UniversalClient, opts ...Option) (*Backend, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	tr, name, err := derive(client, s)
	if err != nil {
		return nil, err
	}
	return newBackend(tr, name, s), nil
}

func newBackend(tr transport, name string, s settings) *Backend {
	b := &Backend{
		settings: s, name: name, process: rand.Text()[:processLength], tr: &group{transport: tr},
		probes: make(chan struct{}, 1), nodes: make(map[string]*node), attempts: make(map[uint64]*attempt),
	}
	b.last.Store(uint64(time.Now().UnixMicro())) // so that attempts grow even if an instance id is used again
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.home = newNode(b)
	b.ear = newEar(b)
	return b
}

// processLength is how many letters of 5 bits make a process's id: 60 bits, enough never to meet another.
const processLength = 12

// String names the server, without credentials.
func (b *Backend) String() string { return "redislock(" + b.name + ")" }

// GoString is String, so that no way to print a Backend shows what its client knows.
func (b *Backend) GoString() string { return b.String() }

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	prev, err := b.before(req)
	if err != nil {
		return nil, nil, err
	}
	a, err := b.open(ctx, req)
	if err != nil {
		prev.giveUp()
		return nil, nil, err
	}
	defer b.calls.Done()
	c := a.entering(prev)
	sent, err := b.ask(ctx, c, req.TTL, distributed.ClaimWindow(req.TTL))
	if err != nil {
		prev.giveUp() // first, for the server remembers only the latest attempt that is over
		a.abandon()
		return nil, nil, err
	}
	if c.reply == oldAnswer { // and it has done nothing
		prev.giveUp()
	} else {
		var lost bool
		c.reply, lost = strings.CutPrefix(c.reply, "lost ")
		prev.givenUp(lost)
	}
	return a.answered(ctx, c, sent)
}

// before returns the lease that an Enter gives up first, taken out of renewal; nil if there is none left to give up.
func (b *Backend) before(req distributed.Request) (*lease, error) {
	if req.Prev == nil {
		return nil, nil
	}
	l, ok := distributed.As[*lease](req.Prev)
	if !ok || l.a.b != b || l.a.key != req.Key {
		return nil, errors.New("redislock: Prev is not a lease of this backend and key")
	}
	if !l.Finish() {
		return nil, nil
	}
	l.begin()
	l.fences.close()
	l.named.Store(true)
	l.adopted.Store(true)
	return l, nil
}

// open checks a request, sees to it that the server was probed, and registers the attempt: before it is sent, for its
// grant can come before the reply. With a nil error, calls counts one more.
func (b *Backend) open(ctx context.Context, req distributed.Request) (*attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.TTL < distributed.MinTTL || req.Instance == "" || req.Key == "" {
		return nil, fmt.Errorf("redislock: a request needs a key, an instance and a TTL of at least %v", distributed.MinTTL)
	}
	b.noteTTL(req.TTL)
	if !b.proven.Load() {
		if err := b.prove(ctx, max(distributed.ClaimWindow(req.TTL), firstBudget)); err != nil {
			return nil, err
		}
	}
	if err := b.fastEnough(req.TTL); err != nil {
		return nil, err
	}
	a := newAttempt(b, req)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, distributed.ErrClosed
	}
	b.calls.Add(1)
	b.attempts[a.id] = a
	if len(b.attempts) >= b.sweepAt {
		b.sweep()
	}
	return a, nil
}

// sweep forgets what is over without anybody having said so: leases lost and never released, places lost. It runs each time the number of attempts has doubled,
// so it costs each of them a constant. The caller holds mu.
func (b *Backend) sweep() {
	for id, a := range b.attempts {
		if a.stale() {
			delete(b.attempts, id)
		}
	}
	b.sweepAt = 2*len(b.attempts) + minSweep
}

const minSweep = 64 // below this many a sweep is not worth it

func (b *Backend) attempt(id uint64) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[id]
}

func (b *Backend) forget(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.attempts, a.id)
}

// Close implements distributed.Backend. It waits for releases under way, at most closeGrace if the server is away.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	all := make([]*attempt, 0, len(b.attempts))
	for _, a := range b.attempts {
		all = append(all, a)
	}
	b.mu.Unlock()

	for _, a := range all {
		a.close()
	}
	b.cancel() // no Enter asks again, so they all end
	b.calls.Wait()
	b.closeNodes()
	b.ear.close()
	return b.tr.close()
}

// see notes that fences up to this one were reserved here.
func (b *Backend) see(fence uint64) {
	for {
		old := b.seen.Load()
		if fence <= old || b.seen.CompareAndSwap(old, fence) {
			return
		}
	}
}

func (b *Backend) noteTTL(ttl time.Duration) {
	for {
		old := b.minTTL.Load()
		if (old != 0 && old <= int64(ttl)) || b.minTTL.CompareAndSwap(old, int64(ttl)) {
			return
		}
	}
}

// instanceName is the instance as it stands in tokens and notices, where colons and blanks separate.
func instanceName(instance string) string { return url.QueryEscape(instance) }
