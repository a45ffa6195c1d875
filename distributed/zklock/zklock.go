package zklock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/deadline"
)

// Backend is the distributed tier on a ZooKeeper ensemble. It is safe for concurrent use; make one per process and ensemble, for
// all its Lockers.
type Backend struct {
	servers   []string
	set       settings
	log       logger
	keeper    *keepalive.Keeper
	due       *deadline.Set[*attempt] // looks without an event
	parents   *deadline.Set[*parent]  // to be deleted when nobody uses them, on servers without containers
	work      workers
	sessions  sessions
	observers observers
	plain     atomic.Bool // the servers have no containers
	counts    counts

	mu       sync.Mutex            // guards all below
	attempts map[*attempt]struct{} // that wait or hold
	next     map[string]string     // of keys whose node is worn: in which node requests are created; a mistake costs a request
	closed   bool                  // no more requests
	sealed   bool                  // no more tasks
	tasks    sync.WaitGroup        // calls of the library and background work; Add under mu, unless sealed
}

// counts are for tests.
type counts struct {
	events  atomic.Int64 // of watches
	watches atomic.Int64 // on children
}

const (
	// DefaultSessionTimeout is that of a session which is asked for before any lease was: by Ping.
	DefaultSessionTimeout = 5 * time.Second
)

// New returns a Backend on the ensemble of these servers, each a host or host:port (2181 if there is no port). It does not connect:
// Ping or the first Enter does.
func New(servers []string, opts ...Option) (*Backend, error) {
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 || slices.Contains(servers, "") {
		return nil, fmt.Errorf("zklock: %d servers, or one without a name: want at least one", len(servers))
	}
	servers = slices.Clone(servers)
	for i, host := range servers {
		servers[i] = withPort(host)
	}
	b := &Backend{servers: servers, set: set, log: logger{set.log}, attempts: make(map[*attempt]struct{}), next: map[string]string{}}
	b.sessions.b, b.work.b = b, b
	b.keeper = keepalive.NewKeeper(renew)
	b.due = deadline.New(func(_ time.Time, due []*attempt) {
		for _, a := range due {
			a.poke()
		}
	})
	b.parents = deadline.New(b.sweep)
	return b, nil
}

// String names the servers, without credentials.
func (b *Backend) String() string { return fmt.Sprintf("zklock(%v%s)", b.servers, b.set.root) }

// GoString is String, so that no way to print a Backend shows a password.
func (b *Backend) GoString() string { return b.String() }

func (b *Backend) dirOf(key string) string { return b.set.root + "/" + escape(key) }

func (b *Backend) rootPath() string {
	if b.set.root == "" {
		return "/"
	}
	return b.set.root
}

func renew(_ context.Context, due []distributed.Lease) {
	now := time.Now()
	for _, d := range due {
		d.(*lease).renew(now)
	}
}

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if req.TTL < distributed.MinTTL || req.Instance == "" || req.Key == "" {
		return nil, nil, fmt.Errorf("zklock: a request needs a key, an instance and a TTL of at least %v", distributed.MinTTL)
	}
	if err := req.CheckLimit(); err != nil {
		return nil, nil, fmt.Errorf("zklock: %w", err)
	}
	l, p, err := b.enter(ctx, req)
	return l, p, b.orClosed(err)
}

// orClosed returns ErrClosed in place of an error that Close has caused.
func (b *Backend) orClosed(err error) error {
	if err != nil && b.isClosed() {
		return distributed.ErrClosed
	}
	return err
}

func (b *Backend) enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	prev := b.adopt(req)
	a, err := b.attempt(ctx, req)
	if err != nil {
		prev.giveUp()
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, distributed.ClaimWindow(req.TTL))
	defer cancel()
	return a.enter(ctx, prev)
}

// attempt returns one with a session for its TTL: another one if that has just been given up.
func (b *Backend) attempt(ctx context.Context, req distributed.Request) (*attempt, error) {
	for {
		s, err := b.sessions.forTTL(ctx, req.TTL)
		if err == nil {
			a := b.newAttempt(s, req)
			if err = b.add(a); err == nil {
				return a, nil
			}
		}
		if s == nil || !s.retired.Load() {
			return nil, err
		}
	}
}

func (b *Backend) add(a *attempt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return distributed.ErrClosed
	case a.s.retired.Load():
		return errOver
	}
	b.attempts[a] = struct{}{}
	return nil
}

// retire gives up a session that nobody uses, and reports whether it has: under mu either this or an attempt is first. What was used has its
// node deleted, or is in the session's line of deletions before it is forgotten.
func (b *Backend) retire(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.attempts {
		if a.s == s {
			return false
		}
	}
	if !s.dead.idle() {
		return false
	}
	s.retired.Store(true)
	return true
}

func (b *Backend) forget(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.attempts, a)
}

// of returns the attempts of a session.
func (b *Backend) of(s *session) []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*attempt
	for a := range b.attempts {
		if a.s == s {
			all = append(all, a)
		}
	}
	return all
}

// lose ends all that depends on a session.
func (b *Backend) lose(s *session) {
	b.sessions.drop(s)
	for _, a := range b.of(s) {
		a.sessionOver()
	}
}

// pokeAll has everybody look again, after a reconnect.
func (b *Backend) pokeAll(s *session) {
	for _, a := range b.of(s) {
		a.reconnected()
	}
}

// holds reports that leases of the session are held.
func (b *Backend) holds(s *session) bool {
	return slices.ContainsFunc(b.of(s), (*attempt).holds)
}

// begin counts a task, for which the caller has to call tasks.Done. It reports false when the Backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.sealed {
		b.tasks.Add(1)
	}
	return !b.sealed
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Close implements distributed.Backend. Places are left and unread grants released. Sessions are closed, unless leases are
// held: then the connection is cut, and the server ends the session, and with it the leases, after its time-out. Close
// waits at most a few seconds for a server that does not answer.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	all := make([]*attempt, 0, len(b.attempts))
	for a := range b.attempts {
		all = append(all, a)
	}
	b.mu.Unlock()
	if !first {
		return nil
	}
	for _, a := range all {
		a.close()
	}
	b.sessions.close()
	b.mu.Lock()
	b.sealed = true
	b.mu.Unlock()
	b.tasks.Wait()
	b.due.Close()
	b.parents.Close()
	b.keeper.Close()
	return nil
}

// close ends what is not held.
func (a *attempt) close() {
	a.mu.Lock()
	state := a.state
	switch state {
	case waiting:
		a.lose()
	case asking:
		a.state = ended
	case leased:
		select {
		case l := <-a.granted: // unread
			defer func() { _ = l.(*lease).begin(l.(*lease).Stop(), false) }()
			close(a.granted)
		default:
		}
	}
	node := a.node
	a.mu.Unlock()
	if state == waiting {
		a.s.dead.add(&removal{path: a.dir + "/" + node, tried: true})
	}
}

// holds reports that the attempt has a lease that may be in use.
func (a *attempt) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == leased && !distributed.Over(time.Now(), a.lease.Until())
}
