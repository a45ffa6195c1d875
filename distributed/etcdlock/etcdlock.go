package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/deadline"
)

// Backend is the distributed tier on an etcd cluster. It is safe for concurrent use; make one per process and cluster, for
// all its Lockers.
type Backend struct {
	set       settings
	dial      *dialer
	keeper    *keepalive.Keeper
	due       *deadline.Set[*attempt] // looks without an event
	base      time.Time               // what times are counted from
	work      workers
	sessions  sessions
	watches   watches
	names     names
	observers observers
	ctx       context.Context // ends in Close, after all else
	cancel    context.CancelFunc

	reconnected atomic.Int64 // when that was last asked for, in nanoseconds since base

	mu       sync.Mutex            // guards all below
	attempts map[*attempt]struct{} // that wait or hold
	closed   bool                  // no more requests
	sealed   bool                  // no more tasks
	tasks    sync.WaitGroup        // background work; Add under mu, unless sealed
}

// New returns a Backend on the cluster of a client, whose connection it uses beside its owner and does not close. It asks nothing
// yet: Ping or the first Enter does. A namespace around the client's KV is not seen: see WithPrefix. A client with a user and a password
// cannot replace a token that has become invalid, and works no more until it is made anew: use [Open] where users have passwords.
func New(client *clientv3.Client, opts ...Option) (*Backend, error) {
	if client == nil {
		return nil, errors.New("etcdlock: New(nil): want a client")
	}
	return newBackend(&dialer{client: client}, opts)
}

func newBackend(d *dialer, opts []Option) (*Backend, error) {
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	b := &Backend{set: set, dial: d, base: time.Now(), attempts: make(map[*attempt]struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.sessions.b, b.work.b, b.watches.b = b, b, b
	b.keeper = keepalive.NewKeeper(renew)
	b.due = deadline.New(b.check)
	return b, nil
}

// String names the prefix, and nothing secret.
func (b *Backend) String() string { return fmt.Sprintf("etcdlock(%s)", b.set.prefix) }

// GoString is String, so that no way to print a Backend shows a password.
func (b *Backend) GoString() string { return b.String() }

func renew(_ context.Context, due []distributed.Lease) {
	now := time.Now()
	for _, d := range due {
		d.(*lease).renew(now)
	}
}

// connect returns the client's connection. It makes the client if that takes a log-in.
func (b *Backend) connect(ctx context.Context) (*grpc.ClientConn, error) {
	client, err := b.dial.get(ctx)
	if err != nil {
		return nil, err
	}
	return client.ActiveConnection(), nil
}

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if req.TTL < distributed.MinTTL || req.Instance == "" || req.Key == "" {
		return nil, nil, fmt.Errorf("etcdlock: a request needs a key, an instance and a TTL of at least %v", distributed.MinTTL)
	}
	if err := req.CheckLimit(); err != nil {
		return nil, nil, fmt.Errorf("etcdlock: %w", err)
	}
	prev := b.adopt(req)
	l, p, err := b.enter(ctx, req, prev)
	if errors.Is(err, errOver) { // while nobody asked, perhaps: the next session is new
		l, p, err = b.enter(ctx, req, prev)
	}
	for errors.Is(err, errTaken) { // the next name is another, and in the end a new one
		l, p, err = b.enter(ctx, req, prev)
	}
	prev.giveUp()
	return l, p, b.orClosed(err)
}

func (b *Backend) enter(ctx context.Context, req distributed.Request, prev *prev) (distributed.Lease, distributed.Place, error) {
	s, err := b.sessions.forTTL(ctx, req.TTL)
	if err != nil {
		return nil, nil, err
	}
	a := b.newAttempt(s, req)
	if !b.add(a) {
		return nil, nil, distributed.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, distributed.ClaimWindow(req.TTL))
	defer cancel()
	return a.enter(ctx, prev)
}

// orClosed returns ErrClosed in place of an error that Close has caused.
func (b *Backend) orClosed(err error) error {
	if err != nil && b.isClosed() {
		return distributed.ErrClosed
	}
	return err
}

func (b *Backend) add(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.attempts[a] = struct{}{}
	}
	return !b.closed
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

// holds reports that leases of the session are held.
func (b *Backend) holds(s *session) bool {
	for _, a := range b.of(s) {
		if a.holds() {
			return true
		}
	}
	return false
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

// Close implements distributed.Backend. Places are left and unread grants released. Sessions are revoked, and with them all
// that is left of them, unless leases are held: then they are kept alive no more, and expire. Close waits at most a few
// seconds for a server that does not answer. It closes the client if Open has made it.
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
	b.cancel()
	b.tasks.Wait()
	b.due.Close()
	b.keeper.Close()
	b.dial.close()
	return nil
}

// close ends what is not held.
func (a *attempt) close() {
	a.mu.Lock()
	waits := a.state == waiting
	switch a.state {
	case waiting:
		a.lose()
	case asking:
		a.ends()
	case leased:
		select {
		case l := <-a.granted: // unread
			defer func() { _ = l.(*lease).begin(l.(*lease).Stop(), false) }()
			close(a.granted)
		default:
		}
	}
	a.mu.Unlock()
	if waits {
		a.s.dead.add(&removal{a: a, tried: true})
	}
}

// holds reports that the attempt has a lease that may be in use.
func (a *attempt) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == leased && !distributed.Over(time.Now(), a.lease.Until())
}
