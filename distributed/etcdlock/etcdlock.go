package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

// Backend is the distributed tier on an etcd cluster. It is safe for concurrent use. Make one per process and cluster, for
// all its Lockers.
type Backend struct {
	engine   *driver.Backend[claim]
	set      settings
	dial     *dialer
	base     time.Time // what times are counted from
	sessions *driver.Sessions[claim, *session]
	watches  watches
	names    names
	ctx      context.Context // ends in Close, after all else
	cancel   context.CancelFunc

	reconnected atomic.Int64 // when that was last asked for, in nanoseconds since base
}

var engineSettings = driver.Settings{
	Name: "etcdlock", Grid: gridPerBeat, LookMost: checkedAtOnce, DropMost: removedAtOnce, Drops: maxRemoving, DropsHere: 1,
}

// New returns a Backend on the cluster of a client. It shares the client's connection with the application, and does not close it. New sends
// nothing: Ping or the first Enter does. A namespace around the client's KV is ignored: see WithPrefix. A client with a user and a password
// cannot replace a token that has become invalid, and then stops working until it is made anew: use [Open] if users have passwords.
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
	b := &Backend{set: set, dial: d, base: time.Now()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.watches.b = b
	b.engine = driver.New(half{b}, engineSettings)
	b.sessions = driver.NewSessions(b.engine, driver.SessionRules{Own: ownSessions, Less: shorter}, b.newSession)
	return b, nil
}

// String names the prefix, but nothing secret.
func (b *Backend) String() string { return fmt.Sprintf("etcdlock(%s)", b.set.prefix) }

// GoString returns what String returns, so that no way of printing a Backend shows a password.
func (b *Backend) GoString() string { return b.String() }

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
	return b.engine.Enter(ctx, req)
}

// Observe implements distributed.Observable. It reports every request, of callers and of background tasks.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.engine.Observe(f) }

// Close implements distributed.Backend. It leaves places, releases unread grants, and revokes sessions with all that is left of them. Sessions
// with held leases are no longer kept alive instead, and expire. Close waits at most a few seconds for a server that does not answer. It closes
// the client if Open has made it.
func (b *Backend) Close() error {
	err := b.engine.Close()
	b.dial.close()
	return err
}
