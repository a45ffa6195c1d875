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

// The flaws are asked for in one statement. Its arguments are in the order of their marks.
var (
	mysqlFlaws = []flaw{
		// A statement would stay without effect until something commits it, and a lock vanish with its connection.
		{"autocommit", "@@autocommit = 0", "@@autocommit", "set autocommit=1 in the DSN"},
		// A statement after a transaction would belong to the next one.
		{"completion_type", "@@completion_type NOT IN ('NO_CHAIN', '0')", "@@completion_type", "set completion_type=0 in the DSN"},
		// Every statement that writes would be refused.
		{"tx_read_only", mysqlReadsOnly, mysqlReadsOnly, "set tx_read_only=0, or transaction_read_only=0 of MySQL, in the DSN"},
		// A statement that finds its row by what is no key would change nothing. Renewals are such.
		{"sql_safe_updates", "@@sql_safe_updates", "@@sql_safe_updates", "set sql_safe_updates=0 in the DSN"},
		// What is read would end early, and what is behind the end would count as gone.
		{"sql_select_limit", "@@sql_select_limit < 4294967295", "@@sql_select_limit", "set sql_select_limit=18446744073709551615 in the DSN"},
		// A look at many locks would be refused, by max_join_size.
		{"sql_big_selects", "NOT @@sql_big_selects", "@@sql_big_selects", "set sql_big_selects=1 in the DSN"},
		// Renewals of many leases, and looks, would be stopped again and again.
		{"max_statement_time", "NULLIF(" + mysqlLongest + ", 0) < 1000", "CONCAT(" + mysqlLongest + ", ' ms')",
			"set max_statement_time=0, or max_execution_time=0 of MySQL, in the DSN"},
		// Of MariaDB: an owner that is none would be NULL, and assignments would not see those before them.
		{"sql_mode", "FIND_IN_SET('EMPTY_STRING_IS_NULL', @@sql_mode) OR FIND_IN_SET('SIMULTANEOUS_ASSIGNMENT', @@sql_mode)", "@@sql_mode",
			"set sql_mode='STRICT_TRANS_TABLES' in the DSN"},
		// A token might be there twice.
		{"unique_checks", "NOT @@unique_checks", "@@unique_checks", "set unique_checks=1 in the DSN"},
		// No lease would ever expire, or each at once.
		{"timestamp", "ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())) > 60", "@@timestamp", "set timestamp=DEFAULT"},
		// Two processes would have two rows for one key, or one row for two keys.
		{"the character set", "HEX(?) <> '" + sampleHex + "'", "CONCAT(@@character_set_client, ' to ', @@character_set_connection)", "give the DSN charset=utf8mb4"},
		// Without transactions two statements that lock the same row both go on.
		{"a table", "EXISTS (SELECT 1" + mysqlForeign + ")", "(SELECT CONCAT(MIN(table_name), ' of ', MIN(engine))" + mysqlForeign + ")",
			"ALTER TABLE ... ENGINE=InnoDB"},
	}
	postgresFlaws = []flaw{
		{"default_transaction_read_only", "current_setting('default_transaction_read_only')::bool", "'on'", "set it off for the role, or in the DSN"},
		{"statement_timeout", postgresShort("statement_timeout"), "current_setting('statement_timeout')", "set it to 0 or a second or more in the DSN"},
		{"transaction_timeout", postgresShort("transaction_timeout"), "current_setting('transaction_timeout', true)",
			"set it to 0 or a second or more in the DSN"},
		// Names are UTF-8, which the server has to be told. One without an encoding takes bytes as they are.
		{"client_encoding", `current_setting('client_encoding') <> 'UTF8' AND current_setting('server_encoding') <> 'SQL_ASCII'
  AND (current_setting('client_encoding') <> 'SQL_ASCII' OR current_setting('server_encoding') <> 'UTF8')`,
			"current_setting('client_encoding')", "set client_encoding=UTF8 in the DSN"},
		// Rows would be hidden and count as gone, or vanish when the server restarts after a crash, or be another session's.
		{"a table", "EXISTS (SELECT 1" + postgresForeign + ")", `(SELECT MIN(c.relname || ' ' || CASE WHEN c.relkind NOT IN ('r', 'p') THEN '(no table of this database)'
  WHEN c.relpersistence <> 'p' THEN '(unlogged or temporary)' ELSE '(with row-level security)' END)` + postgresForeign + ")",
			"create the tables as sqllock.DDL does"},
		// Processes whose sessions look for the tables in different places have different locks. reset_val is what the session began with.
		{"search_path", "$4 = 0 AND current_setting('search_path') <> (SELECT reset_val FROM pg_settings WHERE name = 'search_path')",
			"current_setting('search_path')", "other code has changed it: say where the tables are WithSchema"},
	}
	sqliteFlaws = []flaw{
		{"query_only", "(SELECT query_only FROM pragma_query_only)", "'on'", "remove it from the DSN"},
		// A process that is killed in the middle of a transaction would leave half of it.
		{"journal_mode", "(SELECT journal_mode FROM pragma_journal_mode) IN ('off', 'memory')" + sqliteFile,
			"(SELECT journal_mode FROM pragma_journal_mode)", "set _pragma=journal_mode(WAL) in the DSN"},
		// No other process could open the file.
		{"locking_mode", "(SELECT locking_mode FROM pragma_locking_mode) = 'exclusive'" + sqliteFile, "'exclusive'", "remove it from the DSN"},
	}
)

const (
	// Comments of these kinds are read by MariaDB alone, and by MySQL alone.
	mysqlReadsOnly = "/*M! @@tx_read_only *//*!80003 @@transaction_read_only */"
	mysqlLongest   = "/*M! @@max_statement_time * 1000 *//*!80003 @@max_execution_time */" // in ms
	mysqlForeign   = ` FROM information_schema.tables
  WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name IN (?, ?, ?) AND engine <> 'InnoDB'`
	postgresForeign = ` FROM pg_class c WHERE c.oid IN (to_regclass($1), to_regclass($2), to_regclass($3))
  AND (c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p' OR row_security_active(c.oid))`
	sqliteFile = " AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' AND file <> '')" // it is not in memory

	// sample is a name that only an unchanged one equals: characters of two and of four bytes.
	sample, sampleHex = "\u00e9\U0001f98a", "C3A9F09FA68A"
)

// postgresShort is the condition that statements end too early by a setting, which need not exist.
func postgresShort(setting string) string {
	return "(SELECT setting::bigint BETWEEN 1 AND 999 FROM pg_settings WHERE name = '" + setting + "')"
}

// errMoved: processes whose sessions look for the tables in different places have different locks.
var errMoved = keyless.Errorf("%w: other code has changed where a session looks for its tables: say where they are WithSchema", errSession)

// firstFlaw is an expression of SQL: the number of the first flaw that is there, and what it is. -1: none is.
func firstFlaw(d Dialect, flaws []flaw) string {
	var text strings.Builder
	for i, f := range flaws {
		form := " WHEN %s THEN '%d ' || %s"
		if d == MySQL {
			form = " WHEN %s THEN CONCAT('%d ', %s)"
		}
		fmt.Fprintf(&text, form, f.when, i, f.now)
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
	case b.dialect == SQLite || set.schema != "":
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
	ask := map[Dialect]func(context.Context, querier, *settings) (session, error){MySQL: mysqlSession, PostgreSQL: postgresSession, SQLite: sqliteSession}[d]
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
	var row, moves int64
	var flawed, variable string
	var schema sql.Null[string] // which '' is with EMPTY_STRING_IS_NULL
	tables := []any{set.schema, set.prefix + "_locks", set.prefix + "_waiters", set.prefix + "_meta"}
	// LIMIT 1 is what sql_select_limit=0 does not cut off.
	err = one(ctx, q, "SELECT @@innodb_lock_wait_timeout, DATABASE(), "+firstFlaw(MySQL, mysqlFlaws)+" LIMIT 1",
		append(append([]any{sample}, tables...), tables...), &row, &schema, &flawed)
	if err == nil {
		err = errorOf(mysqlFlaws, flawed)
	}
	if err == nil && set.schema == "" { // the one place where MySQL and MariaDB both tell it
		err = one(ctx, q, "SHOW SESSION STATUS LIKE 'Com_change_db'", nil, &variable, &moves)
	}
	s.row, s.schema = time.Duration(row)*time.Second, schema.V
	if err == nil && moves > 0 {
		err = fmt.Errorf("%w: it was changed to %q by USE", errMoved, s.schema)
	}
	return s, err
}

func postgresSession(ctx context.Context, q querier, set *settings) (s session, err error) {
	var flawed string
	err = one(ctx, q, `SELECT COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)), ''),
  `+firstFlaw(PostgreSQL, postgresFlaws), []any{set.table("locks"), set.table("waiters"), set.table("meta"), len(set.schema)}, &s.schema, &flawed)
	if err == nil {
		err = errorOf(postgresFlaws, flawed)
	}
	return s, err
}

func sqliteSession(ctx context.Context, q querier, _ *settings) (s session, err error) {
	var flawed string
	if err = one(ctx, q, "SELECT "+firstFlaw(SQLite, sqliteFlaws), nil, &flawed); err == nil {
		err = errorOf(sqliteFlaws, flawed)
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
