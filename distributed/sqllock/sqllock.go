package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/deadline"
)

// Backend is the distributed tier in a database. It is safe for concurrent use. Make one per process and database, for all its Lockers.
type Backend struct {
	db       *sql.DB
	dialect  Dialect
	set      settings
	said     atomic.Pointer[statements]
	base     time.Time
	process  string // begins the tokens of its attempts, and names its channel: see newToken
	keeper   *keepalive.Keeper
	due      *deadline.Set[*attempt] // looks and heartbeats
	later    *deadline.Set[*removal] // removals to be tried again
	gate     chan struct{}           // a place for each call that may use a connection
	renewing chan struct{}           // a place for the renewal that is under way
	push     push                    // with a Notifier

	acquiring   prepared
	reacquiring prepared
	releasing   prepared
	seen        names
	stuck       names // of MySQL, whose row somebody kept locked: each statement would go on waiting there, so transactions are tried
	asides      names // that a transaction of a round goes on aside for
	looks       looks
	removals    removals
	observers   observers
	crew        crew
	sessions    sessions

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// asking ends when Close has waited long enough for the answers to requests.
	asking     context.Context
	stopAsking context.CancelFunc

	mu       sync.Mutex // guards all below
	attempts map[string]*attempt
	byName   map[string][]*attempt // the same, by the lock
	gates    map[string]*row       // of locks that calls are under way for
	closed   bool                  // no more requests
	sealed   bool                  // no more tasks
	tasks    sync.WaitGroup        // Add under mu, unless sealed
}

// processLength is how many letters of 5 bits name the process: enough never to meet another.
const processLength = 16

// New returns a Backend on a database that the application has opened, and closes itself after the Backend. New asks nothing of it:
// Ping or the first Enter finds out whether the tables are there, and whether its sessions can keep locks.
func New(db *sql.DB, dialect Dialect, opts ...Option) (*Backend, error) {
	set, err := newSettings(dialect, opts)
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errors.New("sqllock: the database is nil")
	}
	b := &Backend{
		db: db, dialect: dialect, set: set, base: time.Now(), process: rand.Text()[:processLength],
		gate: make(chan struct{}, set.parallel), renewing: make(chan struct{}, 1),
		attempts: make(map[string]*attempt), byName: make(map[string][]*attempt), gates: make(map[string]*row),
		seen: names{many: make(chan struct{}, 1), crowd: set.reapCrowd},
	}
	b.removals.rows = make(map[string]bool)
	b.said.Store(newStatements(dialect, &set))
	if d, is := db.Driver().(interface{ LogTo(*slog.Logger) }); is {
		d.LogTo(set.log)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.asking, b.stopAsking = context.WithCancel(context.Background())
	b.keeper = keepalive.NewKeeper(b.renew)
	b.due = deadline.New(func(_ time.Time, due []*attempt) { b.looks.add(b, due...) })
	b.later = deadline.New(func(_ time.Time, due []*removal) { b.removals.add(b, due...) })
	b.reap()
	b.listen()
	return b, nil
}

// st are the statements: with the schema of the tables in them once that is known (see fit).
func (b *Backend) st() *statements { return b.said.Load() }

// String names the dialect and the tables, and nothing of the connection.
func (b *Backend) String() string {
	return fmt.Sprintf("sqllock(%v, %s)", b.dialect, b.set.table("*"))
}

// GoString is String, so that no way to print a Backend shows a password.
func (b *Backend) GoString() string { return b.String() }

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if req.TTL < distributed.MinTTL || req.Instance == "" || req.Key == "" {
		return nil, nil, fmt.Errorf("sqllock: a request needs a key, an instance and a TTL of at least %v", distributed.MinTTL)
	}
	if err := req.CheckLimit(); err != nil {
		return nil, nil, fmt.Errorf("sqllock: %w", err)
	}
	prev, err := b.adopt(ctx, req)
	if err != nil {
		return nil, nil, b.orClosed(err)
	}
	a := b.newAttempt(req)
	if !b.add(a) {
		return nil, nil, distributed.ErrClosed
	}
	l, p, err := a.enter(ctx, prev)
	if p != nil {
		b.poke(a.name, a) // the holder, if it is in this process, is contended
	}
	return l, p, b.orClosed(err)
}

// newToken names an attempt: by its process, whose channel that is, and by letters of its own, which are drawn now. So a copy of the
// process, which has the same memory, draws others. It fits into the 48 bytes of the columns.
func (b *Backend) newToken() string { return b.process + "." + rand.Text() }

func (b *Backend) orClosed(err error) error {
	if err != nil && b.isClosed() {
		return distributed.ErrClosed
	}
	return err
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// add registers an attempt, until forget. It reports false when the Backend is closed.
func (b *Backend) add(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.attempts[a.token] = a
		b.byName[a.name] = append(b.byName[a.name], a)
	}
	return !b.closed
}

// forget takes out an attempt, so that a key that nobody uses takes no memory. Repeated calls do nothing.
func (b *Backend) forget(a *attempt) {
	b.due.Remove(&a.item)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attempts[a.token] != a {
		return
	}
	delete(b.attempts, a.token)
	rest := b.byName[a.name]
	for i, one := range rest {
		if one == a {
			rest[i] = rest[len(rest)-1]
			rest[len(rest)-1] = nil
			b.byName[a.name] = rest[:len(rest)-1]
			break
		}
	}
	if len(b.byName[a.name]) == 0 {
		delete(b.byName, a.name)
	}
}

// of returns the attempts of a lock in this process.
func (b *Backend) of(name string) []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byName[name]) == 0 {
		return nil
	}
	return append([]*attempt(nil), b.byName[name]...)
}

// usedByOthers reports that others in this process have the attempt's lock, or wait for it.
func (b *Backend) usedByOthers(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byName[a.name]) > 1
}

func (b *Backend) all() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*attempt, 0, len(b.attempts))
	for _, a := range b.attempts {
		all = append(all, a)
	}
	return all
}

func (b *Backend) find(token string) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[token]
}

// poke has those who wait for a lock in this process, or hold it, look at it at once: one of them has changed it.
func (b *Backend) poke(name string, by *attempt) {
	some := slices.DeleteFunc(b.of(name), func(a *attempt) bool { return a == by })
	if len(some) > 0 {
		b.looks.add(b, some...)
	}
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

// finishTasks lets no more tasks begin and waits for the end of those that run, for requests until ctx ends.
func (b *Backend) finishTasks(ctx context.Context) {
	b.mu.Lock()
	b.sealed = true
	b.mu.Unlock()
	b.crew.close()
	stop := context.AfterFunc(ctx, b.stopAsking)
	b.tasks.Wait()
	stop()
	b.stopAsking()
}

// closeTime is how long Close tries to take places and unread grants out of the database, and waits for answers to requests; later
// they expire.
const closeTime = 2 * time.Second

// Close implements distributed.Backend. Places are left and unread grants released, unless the database does not answer. The
// *sql.DB stays open without WithOwnedDB.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if !first {
		return nil
	}
	var left []*removal
	for _, a := range b.all() {
		if r := a.close(); r != nil {
			left = append(left, r)
		}
	}
	b.cancel()
	b.due.Close()
	left = append(left, b.later.Close()...)
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	b.removals.finish(ctx, b, left)
	b.finishTasks(ctx)
	b.removals.finish(ctx, b, nil) // what requests have got that were answered meanwhile
	b.keeper.Close()
	b.acquiring.close()
	b.reacquiring.close()
	b.releasing.close()
	if b.set.owned {
		return b.db.Close()
	}
	return nil
}
