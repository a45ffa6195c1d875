package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// The sessions of a database that the application has opened are as it, or the server, has set them. Some settings break what a lock
// promises. So a session is asked for them before the first grant, and by Ping and Migrate. The packages mysql and postgres set them
// themselves.

// errSession begins the errors that name a setting.
var errSession = keyless.Errorf("the sessions of this database cannot keep locks")

// flaw is a setting of a session, or something else that it sees, which breaks what a lock promises.
type flaw struct {
	what string // as people know it
	when string // an expression of SQL: it does
	now  string // an expression of SQL: what it is now, as text
	fix  string
}

// errMoved: processes whose sessions look for the tables in different places have different locks.
var errMoved = keyless.Errorf("%w: other code has changed where a session looks for its tables: say where they are WithSchema", errSession)

// firstFlaw is an expression of SQL: the number of the first flaw that is there, and what it is. -1: none is.
func (t *traits) firstFlaw() string {
	var text strings.Builder
	for i, f := range t.flaws {
		fmt.Fprintf(&text, t.flawed, f.when, i, f.now)
	}
	return "CASE" + text.String() + " ELSE '-1 ' END"
}

// errorOf is the error of what firstFlaw has found.
func errorOf(flaws []flaw, found string) error {
	number, now, _ := strings.Cut(found, " ")
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 {
		return err
	}
	return keyless.Errorf("%w: %s is %s: %s", errSession, flaws[i].what, now, flaws[i].fix)
}

// sessions is what a Backend knows of its sessions.
type sessions struct {
	fit      atomic.Bool // one was asked, and fits
	warned   sync.Once
	dropping atomic.Bool // those of a server that only reads are being closed
}

// fit asks a session once whether it can keep locks, and where the tables are (rule D12). From then on every statement names the
// schema, so that it does not matter what other code does to a session of the pool. Several first requests at a time may each ask;
// all get the same answer.
func (b *Backend) fit(ctx context.Context) error {
	if b.sessions.fit.Load() {
		return nil
	}
	set := *b.st().set
	s, err := sessionOf(ctx, b.db, b.dialect, &set)
	switch {
	case err != nil:
		return err
	case !b.is.schemas || set.schema != "":
	case s.schema == "":
		return errNoTables
	default:
		set.schema = s.schema
		b.said.Store(newStatements(b.dialect, &set))
	}
	if err = checkFormat(ctx, b.db, b.st()); err != nil {
		return err
	}
	b.sessions.warned.Do(func() { s.warn(b) })
	b.sessions.fit.Store(true)
	return nil
}

// session is what a session says of itself.
type session struct {
	schema string        // of the tables; "": they are not there, or it was not asked
	row    time.Duration // how long a statement waits for a row; 0: it was not asked
}

// longestRowWait is how long a statement may wait for a row that somebody keeps locked, without a warning: each further try takes
// another connection meanwhile.
const longestRowWait = 5 * time.Second

func (s session) warn(b *Backend) {
	if s.row > longestRowWait {
		b.set.log.Warn("sqllock: a setting of the sessions should be changed", "set", "innodb_lock_wait_timeout=1", "now", s.row,
			"why", "a row that somebody keeps locked takes a connection for each try")
	}
}

// sessionOf asks a session for its settings, and where it finds the tables unless the settings of the Backend say it. Its error names
// the setting that does not fit.
func sessionOf(ctx context.Context, db *sql.DB, d Dialect, set *settings) (s session, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close() }()
	var row, moves int64
	var flawed, variable string
	var schema sql.Null[string]
	is := dialects[d]
	text := set.fill(strings.Replace(is.session, "{flaw}", is.firstFlaw(), 1))
	if err = one(ctx, conn, text, nil, &row, &schema, &flawed); err == nil {
		err = errorOf(is.flaws, flawed)
	}
	if err == nil && set.schema == "" && is.moved != "" {
		err = one(ctx, conn, is.moved, nil, &variable, &moves)
	}
	s.row, s.schema = time.Duration(row)*time.Second, schema.V
	switch {
	case err != nil:
	case moves > 0:
		err = fmt.Errorf("%w: it was changed to %q by USE", errMoved, s.schema)
	case s.schema != "" && !schemaPattern.MatchString(s.schema):
		err = fmt.Errorf("%w: the tables are in %q: want a name of %s", errSession, s.schema, schemaWanted)
	}
	return s, err
}

// one reads a single row.
func one(ctx context.Context, q querier, text string, args []any, into ...any) error {
	r, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if !r.Next() {
		return cmp.Or(r.Err(), sql.ErrNoRows)
	}
	return cmp.Or(r.Scan(into...), r.Err())
}
