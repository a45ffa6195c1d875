package memcachelock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Backend is the distributed tier on memcached. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	locks    *register.Backend // see package register
	client   *memcache.Client
	selector memcache.ServerSelector // of the client; nil: not known
	limit    atomic.Int64            // for an exchange, of the client that Open makes: a time.Duration
	own      bool                    // Close closes it
	unfenced bool

	asking    parts.Tasks // of Ping and Echo
	observers parts.Observers
}

// Format is the version of the items. A later version has its number in them, and is refused.
const Format = register.Format

// Option changes how a Backend works.
type Option func(*Backend)

// WithUnfenced consents to locks without fences, on a service that may forget them. New returns an error without it. The package's documentation
// says what that means.
func WithUnfenced() Option { return func(b *Backend) { b.unfenced = true } }

// WithSelector tells New which server has a key, if the client has several servers: s is the selector that the client was made from. Then a
// silent server holds up no renewal or release at another one. [Open] does not need it.
func WithSelector(s memcache.ServerSelector) Option { return func(b *Backend) { b.selector = s } }

// New returns a Backend over the servers of client. It needs [WithUnfenced], and with several servers [WithSelector]. It does not connect. The
// client belongs to the caller. Its Timeout bounds every exchange, so set that to at most T/5, and MaxIdleConns to the number of concurrent
// callers.
func New(client *memcache.Client, opts ...Option) (*Backend, error) {
	b := &Backend{client: client}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("memcachelock: an option is nil")
		}
		o(b)
	}
	switch {
	case client == nil:
		return nil, errors.New("memcachelock: the client is nil")
	case !b.unfenced:
		return nil, errors.New("memcachelock: memcached has no fencing tokens, and may evict or forget a lock that is held: " +
			"choose another backend if two holders would do harm, or consent with WithUnfenced()")
	}
	b.locks = register.New("memcachelock", store{b}, register.Forgetful())
	return b, nil
}

// timeoutShare of T bounds an exchange of the client that [Open] makes, and longestTimeout: so slow may a round trip be, and one that is lost
// leaves time for more.
const timeoutShare, longestTimeout = 5, time.Second

// maxTTL keeps an item's expiry below 30 days; beyond them memcached takes it for a date.
const maxTTL = 14 * 24 * time.Hour

// Enter implements distributed.Backend. The maximum TTL is 14 days.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if req.TTL > maxTTL {
		return nil, nil, keyless.Errorf("memcachelock: a TTL of %v: want %v at most", req.TTL, maxTTL)
	}
	for limit := b.limit.Load(); limit > int64(req.TTL/timeoutShare); limit = b.limit.Load() {
		b.limit.CompareAndSwap(limit, int64(req.TTL/timeoutShare))
	}
	return b.locks.Enter(ctx, req)
}

// Ping implements distributed.Backend. One server must lock and release. If another one of several fails, that affects only its own keys.
func (b *Backend) Ping(ctx context.Context) error {
	return b.first(ctx, 1, func(ctx context.Context, key string) error {
		if err := b.get(ctx, key); err != nil { // at once, where a lock is asked for until the claim window ends
			return err
		}
		return b.locks.PingKey(ctx, key)
	})
}

// Observe implements distributed.Observable. It reports the exchanges with all servers.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.observers.Observe(f) }

// Echo implements distributed.Observable. It returns nil if a server answers.
func (b *Backend) Echo(ctx context.Context) error {
	sent := time.Now()
	err := b.first(ctx, unknownServers, b.get)
	b.observers.Exchanged(sent, err)
	return err
}

// get asks for an item that is not there. A server that was restarted has closed all connections that the client keeps: each fails at once,
// and is kept no more, so they are tried one after the other.
func (b *Backend) get(ctx context.Context, key string) (err error) {
	for range b.client.MaxIdleConns + 2 { // the client keeps two if that is 0, and makes a new one when none is left
		_, err = b.client.Get(itemKey(key))
		switch closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE); {
		case err == nil, errors.Is(err, memcache.ErrCacheMiss):
			return nil
		case !closed, ctx.Err() != nil:
			return sorted(err)
		}
	}
	return sorted(err)
}

// first asks all servers at once, and returns nil as soon as one has answered with that. Otherwise it returns what the first has answered, as
// far as one has. Of servers that New was not told of, so many random keys find some.
func (b *Backend) first(ctx context.Context, unknown int, ask func(ctx context.Context, key string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is under way at other servers
	keys := b.keys(unknown)
	answers := make(chan error, len(keys))
	for _, key := range keys {
		if !b.asking.Go(func() { answers <- ask(ctx, key) }) {
			return distributed.ErrClosed
		}
	}
	var why error
	for range keys {
		select {
		case err := <-answers:
			switch {
			case err == nil:
				return nil
			case why == nil || errors.Is(err, distributed.ErrRefused) && !errors.Is(why, distributed.ErrRefused):
				why = err
			}
		case <-ctx.Done():
			return distributed.Unavailable("memcachelock", cmp.Or(why, ctx.Err()), ctx.Err())
		}
	}
	return why
}

// unknownServers is how many random keys find one that answers, if New was not told of the servers.
const unknownServers = 8

// count is how many servers the client has. 0: that is not known.
func (b *Backend) count() (n int) {
	if b.selector != nil {
		_ = b.selector.Each(func(net.Addr) error { n++; return nil }) // nil, as its function's
	}
	return n
}

// keys returns one for each server that no caller uses, or so many if the servers are not known.
func (b *Backend) keys(unknown int) (all []string) {
	n, seen := cmp.Or(b.count(), unknown), map[string]bool{}
	for tries := 0; len(all) < n && tries < 100*n; tries++ { // one that is listed twice counts as two
		key := rand.Text()
		if server := b.serverOf(key); b.selector == nil || !seen[server] {
			seen[server] = true
			all = append(all, key)
		}
	}
	return all
}

// serverOf names the server that has a key. "": it is not known.
func (b *Backend) serverOf(key string) string {
	if b.selector == nil {
		return ""
	}
	addr, err := b.selector.PickServer(itemKey(key))
	if err != nil {
		return "" // the request says why
	}
	return addr.String()
}

// Close implements distributed.Backend. It leaves the places. If a server does not answer, Close continues for a second, or for the client's
// Timeout if a request is under way.
func (b *Backend) Close() error {
	_ = b.locks.Close() // nil
	b.asking.Close()
	if b.own {
		return b.client.Close()
	}
	return nil
}
