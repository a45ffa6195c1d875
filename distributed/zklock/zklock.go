package zklock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/openurl"
)

// Backend is the distributed tier on a ZooKeeper ensemble. It is safe for concurrent use. Make one per process and ensemble, for
// all its Lockers.
type Backend struct {
	engine   *driver.Backend[claim]
	servers  []string
	set      settings
	parents  *deadline.Set[*parent] // to be deleted when nobody uses them
	sessions *driver.Sessions[claim, *session]
	plain    atomic.Bool // the servers have no containers
	counts   counts

	mu   sync.Mutex
	next map[string]string // guarded by mu; of keys whose node is worn: in which node requests are created; a mistake costs a request
}

// counts are for tests.
type counts struct {
	events  atomic.Int64 // of watches
	watches atomic.Int64 // on children
}

const (
	// DefaultSessionTimeout is the timeout of a session that is needed before any lease was requested: by Ping.
	DefaultSessionTimeout = 5 * time.Second
)

// New returns a Backend on the ensemble of these servers, each a host or host:port (default port 2181). It does not connect: Ping or the first
// Enter does.
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
		servers[i] = openurl.WithPort(host, defaultPort)
	}
	b := &Backend{servers: servers, set: set, next: map[string]string{}}
	b.engine = driver.New(half{b}, engineSettings)
	b.sessions = driver.NewSessions(b.engine, driver.SessionRules{}, b.newSession)
	b.parents = deadline.New(b.sweep)
	return b, nil
}

// String names the servers, without credentials.
func (b *Backend) String() string { return fmt.Sprintf("zklock(%v%s)", b.servers, b.set.root) }

// GoString returns what String returns, so that no way of printing a Backend shows a password.
func (b *Backend) GoString() string { return b.String() }

func (b *Backend) dirOf(key string) string { return b.set.root + "/" + escape(key) }

func (b *Backend) rootPath() string {
	if b.set.root == "" {
		return "/"
	}
	return b.set.root
}

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.engine.Enter(ctx, req)
}

// Observe implements distributed.Observable. It reports every request, of callers and of background tasks.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.engine.Observe(f) }

// Close implements distributed.Backend. It leaves places, releases unread grants, and closes sessions. If leases are held, it cuts the
// connection instead, and the server ends the session, and with it the leases, after its timeout. Close waits at most a few seconds for a server
// that does not answer.
func (b *Backend) Close() error {
	err := b.engine.Close()
	b.parents.Close()
	return err
}
