package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/crew"
)

// Backend is the distributed tier in a database. It is safe for concurrent use. Make one per process and database, for all its Lockers.
type Backend struct {
	db      *sql.DB
	dialect Dialect
	is      *traits
	set     settings
	said    atomic.Pointer[statements]
	base    time.Time
	process string                // begins the tokens of its attempts, and names its channel: see newToken
	client  *driver.Backend[ours] // what becomes of requests: see package driver
	lane    *driver.Lane[ours]
	known   known

	gates    gates
	renewing chan struct{} // a place for the renewal that is under way
	removing removing
	push     push // with a Notifier

	acquiring   prepared
	reacquiring prepared
	releasing   prepared
	seen        names
	stuck       names // of MySQL, whose row somebody kept locked: each statement would go on waiting there, so transactions are tried
	asides      names // that a transaction of a round goes on aside for
	crew        *crew.Crew[func()]
	sessions    sessions
	close       func() error // once

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// asking ends when Close has waited long enough for the answers to requests.
	asking     context.Context
	stopAsking context.CancelFunc
}

// processLength is how many letters of 5 bits name the process: enough never to meet another.
const processLength = 16

// New returns a Backend on a database that the application has opened, and closes after the Backend. New sends nothing: Ping or the first Enter
// finds out whether the tables are there, and whether its sessions can keep locks. With WithOwnedDB, New closes the database if it fails.
func New(db *sql.DB, dialect Dialect, opts ...Option) (*Backend, error) {
	set, err := newSettings(dialect, opts)
	switch {
	case db == nil:
		return nil, errors.New("sqllock: the database is nil")
	case err != nil && set.owned:
		return nil, errors.Join(err, db.Close())
	case err != nil:
		return nil, err
	}
	b := &Backend{
		db: db, dialect: dialect, is: set.is, set: set, base: time.Now(), process: rand.Text()[:processLength],
		known:    known{byToken: map[string]*attempt{}, byName: map[string][]*attempt{}},
		gates:    gates{all: make(chan struct{}, set.parallel), rows: map[string]*row{}},
		renewing: make(chan struct{}, 1),
		removing: removing{rows: map[string]chan struct{}{}},
	}
	b.said.Store(newStatements(dialect, &set))
	if d, is := db.Driver().(interface{ LogTo(*slog.Logger) }); is {
		d.LogTo(set.log)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.asking, b.stopAsking = context.WithCancel(context.Background())
	b.client = driver.New(half{b}, half{b}.settings())
	b.crew = crew.New(func(enter func()) {
		defer b.client.Done()
		enter()
	})
	b.lane, b.close = b.client.NewLane(b.ctx, nil), sync.OnceValue(b.closeAll)
	b.client.Go(b.reap)
	b.listen()
	return b, nil
}

// st are the statements: with the schema of the tables in them once that is known (see fit).
func (b *Backend) st() *statements { return b.said.Load() }

// String names the dialect and the tables, but nothing of the connection.
func (b *Backend) String() string {
	return fmt.Sprintf("sqllock(%v, %s)", b.dialect, b.set.table("*"))
}

// GoString returns what String returns, so that no way of printing a Backend shows a password.
func (b *Backend) GoString() string { return b.String() }

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.client.Enter(ctx, req)
}

// newToken names an attempt: by its process, whose channel that is, and by letters of its own, which are drawn now. So a copy of the
// process, which has the same memory, draws others. It fits into the 48 bytes of the columns.
func (b *Backend) newToken() string { return b.process + "." + rand.Text() }

// Close implements distributed.Backend. It leaves places and releases unread grants, unless the database does not answer. It closes the *sql.DB
// only with WithOwnedDB.
func (b *Backend) Close() error { return b.close() }

func (b *Backend) closeAll() error {
	_ = b.client.Close()                   // nil
	_ = b.crew.Close(context.Background()) // nil: the requests have ended
	b.acquiring.close()
	b.reacquiring.close()
	b.releasing.close()
	if b.set.owned {
		return b.db.Close()
	}
	return nil
}
