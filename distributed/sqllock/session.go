package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The sessions of a database that the application has opened are as it, or the server, has set them. Some settings break what a lock
// promises. So a session is asked for them before the first grant, and by Ping and Migrate. The packages mysql and postgres set them
// themselves.

// errSession begins the errors that name a setting.
var errSession = errors.New("the sessions of this database cannot keep locks")

var (
	// errNotCommitted: a statement would stay without effect until something commits it, and a lock vanish with its connection.
	errNotCommitted = fmt.Errorf("%w: autocommit is off: set autocommit=1 in the DSN", errSession)
	// errChained: a statement after a transaction would belong to the next one.
	errChained = fmt.Errorf("%w: completion_type is not NO_CHAIN: set completion_type=0 in the DSN", errSession)
	// errSafe: a statement that finds its row by what is no key would change nothing. Renewals are such.
	errSafe = fmt.Errorf("%w: sql_safe_updates is on: set sql_safe_updates=0 in the DSN", errSession)
	// errCutOff: what is read would end early, and what is behind the end would count as gone.
	errCutOff = fmt.Errorf("%w: sql_select_limit cuts off what is read: set sql_select_limit=%d in the DSN", errSession, uint64(math.MaxUint64))
	// errSmallSelects: a look at many locks would be refused.
	errSmallSelects = fmt.Errorf("%w: sql_big_selects is off, so max_join_size refuses statements: set sql_big_selects=1 in the DSN", errSession)
	// errEngine: without transactions two statements that lock the same row both go on.
	errEngine = fmt.Errorf("%w: not all tables are of InnoDB: ALTER TABLE ... ENGINE=InnoDB", errSession)
	// errMode: a statement would mean something else.
	errMode = fmt.Errorf("%w: sql_mode has %s: set sql_mode='STRICT_TRANS_TABLES' in the DSN", errSession, strings.Join(badModes, " or "))
	// errNames: two processes would have two rows for one key, or one row for two keys.
	errNames = fmt.Errorf("%w: names are not stored as they are: give the DSN the character set utf8mb4, or client_encoding=UTF8 on PostgreSQL",
		errSession)
	// errMoved: processes whose sessions look for the tables in different places have different locks.
	errMoved = fmt.Errorf("%w: other code has changed where a session looks for its tables: say where they are WithSchema", errSession)
)

// badModes are of MariaDB: an owner that is none would be NULL, and assignments would not see those before them.
var badModes = []string{"EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT"}

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
	if b.dialect == SQLite || b.sessions.fit.Load() {
		return nil
	}
	set := *b.st().set
	s, err := sessionOf(ctx, b.db, b.dialect, &set)
	switch {
	case err != nil:
		return err
	case set.schema == "" && s.schema == "":
		return errNoTables
	case set.schema == "":
		set.schema = s.schema
		b.said.Store(newStatements(b.dialect, &set))
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

// sample is a name that only an unchanged one equals: characters of two and of four bytes.
const sample = "é🦊"

// sessionOf asks a session for its settings, and where it finds the tables unless the settings of the Backend say it. Its error names
// the setting that does not fit.
func sessionOf(ctx context.Context, db *sql.DB, d Dialect, set *settings) (s session, err error) {
	ask, known := map[Dialect]func(context.Context, querier, *settings) (session, error){MySQL: mysqlSession, PostgreSQL: postgresSession}[d]
	if !known {
		return s, nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close() }()
	s, err = ask(ctx, conn, set)
	if err == nil && s.schema != "" && !schemaPattern.MatchString(s.schema) {
		err = fmt.Errorf("%w: the tables are in %q: want a name of %s", errSession, s.schema, schemaWanted)
	}
	return s, err
}

func mysqlSession(ctx context.Context, q querier, set *settings) (s session, err error) {
	var commits, row, moves, safe, big int64
	var limit uint64
	var completion, name, variable, mode, foreign, engine string
	err = one(ctx, q, `SELECT @@autocommit, @@completion_type, HEX(?), @@innodb_lock_wait_timeout, COALESCE(DATABASE(), ''),
  @@sql_safe_updates, @@sql_select_limit, @@sql_big_selects, @@sql_mode LIMIT 1`, []any{sample}, // which sql_select_limit=0 does not cut off
		&commits, &completion, &name, &row, &s.schema, &safe, &limit, &big, &mode)
	whole := limit >= math.MaxUint32
	if err == nil && whole && set.schema == "" { // the one place where MySQL and MariaDB both tell it
		err = one(ctx, q, "SHOW SESSION STATUS LIKE 'Com_change_db'", nil, &variable, &moves)
	}
	if err == nil && whole {
		err = ignoring(one(ctx, q, `SELECT table_name, engine FROM information_schema.tables
WHERE table_schema = ? AND table_name IN (?, ?, ?) AND engine <> 'InnoDB' LIMIT 1`,
			[]any{cmp.Or(set.schema, s.schema), set.prefix + "_locks", set.prefix + "_waiters", set.prefix + "_meta"}, &foreign, &engine), sql.ErrNoRows)
	}
	s.row = time.Duration(row) * time.Second
	switch {
	case err != nil:
	case commits == 0:
		err = errNotCommitted
	case completion != "NO_CHAIN" && completion != "0":
		err = errChained
	case safe != 0:
		err = errSafe
	case !whole:
		err = errCutOff
	case big == 0:
		err = errSmallSelects
	case slices.ContainsFunc(badModes, func(bad string) bool { return strings.Contains(mode, bad) }):
		err = errMode
	case !strings.EqualFold(name, hex.EncodeToString([]byte(sample))):
		err = errNames
	case foreign != "":
		err = fmt.Errorf("%w: %s is of %s", errEngine, foreign, engine)
	case moves > 0:
		err = fmt.Errorf("%w: it was changed to %q by USE", errMoved, s.schema)
	}
	return s, err
}

// postgresSession: names are UTF-8, which the server has to be told; one without an encoding takes bytes as they are. reset_val is the
// search path that the session began with.
func postgresSession(ctx context.Context, q querier, set *settings) (s session, err error) {
	const utf8, none = "UTF8", "SQL_ASCII"
	var client, server, path, began string
	err = one(ctx, q, `SELECT current_setting('client_encoding'), current_setting('server_encoding'), current_setting('search_path'),
  (SELECT reset_val FROM pg_settings WHERE name = 'search_path'),
  COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)), '')`,
		[]any{set.table("locks")}, &client, &server, &path, &began, &s.schema)
	switch {
	case err != nil:
	case client != utf8 && server != none && (client != none || server != utf8):
		err = errNames
	case set.schema == "" && path != began:
		err = fmt.Errorf("%w: its search_path is %q, and was %q at first", errMoved, path, began)
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
