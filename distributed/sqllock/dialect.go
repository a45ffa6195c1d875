package sqllock

import (
	"strconv"
	"strings"
)

// Dialect is the kind of database.
type Dialect uint8

// The dialects. MariaDB uses MySQL.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
	SQLite
)

// String returns "postgres", "mysql" or "sqlite".
func (d Dialect) String() string {
	if t := dialects[d]; t != nil {
		return t.name
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

// traits are all else in which the databases differ: nobody outside of this file asks for the dialect.
type traits struct {
	name    string
	quote   string   // of the name of a schema
	words   []string // of templates
	acquire string   // the template for a new key, and
	again   string   // for one whose row is there
	begin   string   // a transaction that sees what others have committed before each of its statements
	commit  string
	reset   string // after a rollback; "": nothing
	session string // what a session says of itself: how long a statement waits for a row, where the tables are, and its first flaw
	moved   string // how often a session was moved; "": a flaw says it
	flawed  string // how a flaw is written: its condition, number and value
	flaws   []flaw

	numbered  bool // arguments are $1, $2, ...
	schemas   bool // a session decides where the tables are
	returning bool // a statement returns what it has changed
	atOnce    bool // one statement can do what takes a transaction elsewhere, and notify: see postgres.go
	goesOn    bool // a statement goes on waiting for a row when its client has gone
	oneWriter bool // at a time, in no order
	prepares  bool // reading a statement is most of its cost, and the driver keeps none
}

var dialects = map[Dialect]*traits{
	PostgreSQL: {
		name: "postgres", quote: `"`, acquire: upsert, again: again, numbered: true, schemas: true, returning: true, atOnce: true,
		begin: "BEGIN ISOLATION LEVEL READ COMMITTED", commit: "COMMIT",
		words: []string{"{now}", postgresNow, "{bound}", postgresBound, "{greatest}", "GREATEST", "{lock}", " FOR UPDATE", "{all}", "",
			"{by name}", "", "{by token}", "", "{or update}", "ON CONFLICT (name) DO UPDATE SET", "{as old}", " AS o", "{old}", "o."},
		session: `SELECT 0, COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = to_regclass('{locks}')), ''), {flaw}`,
		flaws: postgresFlaws, flawed: " WHEN %s THEN '%d ' || %s",
	},
	MySQL: {
		name: "mysql", quote: "`", acquire: mysqlUpsert, again: mysqlAgain, schemas: true, goesOn: true, prepares: true,
		begin: mysqlBegin, commit: mysqlCommit, reset: mysqlCommit,
		words: []string{"{now}", mysqlNow, "{bound}", "", "{greatest}", "GREATEST",
			// Other code of the application may set sql_select_limit in a session of the pool. It does not hold where there is another limit:
			// else what is cut off would count as gone.
			"{lock}", " LIMIT 1 FOR UPDATE", "{all}", " LIMIT 18446744073709551615",
			// A scan of a small table would lock other locks' rows.
			"{by name}", " FORCE INDEX (PRIMARY)", "{by token}", " FORCE INDEX (token)", "{or update}", "ON DUPLICATE KEY UPDATE",
			"{as old}", "", "{old}", ""},
		// LIMIT 1 is what sql_select_limit=0 does not cut off. DATABASE() is '' at times, which is NULL with EMPTY_STRING_IS_NULL.
		session: "SELECT @@innodb_lock_wait_timeout, DATABASE(), {flaw} LIMIT 1",
		moved:   "SHOW SESSION STATUS LIKE 'Com_change_db'", // the one place where MySQL and MariaDB both tell it
		flaws:   mysqlFlaws, flawed: " WHEN %s THEN CONCAT('%d ', %s)",
	},
	SQLite: {
		name: "sqlite", quote: `"`, acquire: upsert, again: again, returning: true, oneWriter: true, prepares: true,
		begin: sqliteBegin, commit: sqliteCommit,
		words: []string{"{now}", sqliteNow, "{bound}", "", "{greatest}", "MAX", "{lock}", "", "{all}", "", "{by name}", "", "{by token}", "",
			"{or update}", "ON CONFLICT (name) DO UPDATE SET", "{as old}", " AS o", "{old}", "o."},
		session: "SELECT 0, '', {flaw}", flaws: sqliteFlaws, flawed: " WHEN %s THEN '%d ' || %s",
	},
}

// query is a statement whose arguments are written $1, $2, ... Databases that number them otherwise get them in the order in
// which they stand in the text.
type query struct {
	text  string
	order []int // the argument of each mark; nil: PostgreSQL takes them as they are
}

func (q query) args(args ...any) []any {
	if q.order == nil {
		return args
	}
	ordered := make([]any, len(q.order))
	for i, n := range q.order {
		ordered[i] = args[n-1]
	}
	return ordered
}

// compile makes a query of a template.
func (d Dialect) compile(template string) query {
	if dialects[d].numbered {
		return query{text: template}
	}
	q := query{order: []int{}}
	var text strings.Builder
	for {
		before, after, found := strings.Cut(template, "$")
		text.WriteString(before)
		if !found {
			break
		}
		end := 0
		for end < len(after) && after[end] >= '0' && after[end] <= '9' {
			end++
		}
		n, _ := strconv.Atoi(after[:end])
		q.order = append(q.order, n)
		text.WriteByte('?')
		template = after[end:]
	}
	q.text = text.String()
	return q
}

// marks writes n arguments as a list, beginning with number first.
func (d Dialect) marks(first, n int) string {
	if !dialects[d].numbered {
		return strings.Repeat("?,", n-1) + "?"
	}
	var list strings.Builder
	for i := range n {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteByte('$')
		list.WriteString(strconv.Itoa(first + i))
	}
	return list.String()
}

// statements are the statements of a Backend, in its dialect and with the names of its tables.
type statements struct {
	set     *settings
	d       Dialect
	text    func(template string) string // puts in the words of the dialect, and the names
	acquire query                        // for a new key
	again   query                        // for one whose row is there
	release query
	load    query
	entries query
	store   query
	add     query
	alter   query
	peek    query

	queueUp, queueUpLoudly, takeFirst, releaseAtOnce, releaseLoudly query // of PostgreSQL

	// With lists for an argument: see list.
	drop, renew, renewMembers, renewFree, renewFreeSeats, beat, places, leases, seats, owners string
}

func newStatements(d Dialect, s *settings) *statements {
	st, is := &statements{set: s, d: d}, dialects[d]
	names, words := strings.NewReplacer(s.names()...), strings.NewReplacer(is.words...) // once: to make them costs more than to use them
	st.text = func(template string) string { return words.Replace(names.Replace(template)) }
	for q, template := range map[*query]string{
		&st.acquire: is.acquire, &st.again: is.again, &st.release: release, &st.load: load, &st.entries: entries, &st.store: store, &st.add: add,
		&st.alter: alter, &st.peek: peek, &st.takeFirst: takeFirst, &st.queueUp: queueUpSilently, &st.queueUpLoudly: queueUpLoudly,
		&st.releaseAtOnce: releaseSilently, &st.releaseLoudly: releaseLoudly,
	} {
		*q = d.compile(st.text(template))
	}
	for q, template := range map[*string]string{
		&st.drop: drop, &st.renew: renew, &st.renewMembers: renewMembers, &st.beat: beat, &st.places: places, &st.leases: leases,
		&st.seats: seats, &st.owners: owners, &st.renewFree: d.ofUnlocked(owned, "{locks}", "name", renewed, "owner, queued, expires_at"),
		&st.renewFreeSeats: d.ofUnlocked(seated, "{waiters}", "token", renewedSeat, "token, "+seatQueued+", expires_at"),
	} {
		*q = st.text(template)
	}
	return st
}

// The databases' clocks in microseconds. All are read when the statement runs; one that has waited for a row's lock may have read
// it before. Then it takes less for expired than there is, and what it writes expires sooner, which does no harm (rule D2).
const (
	// postgresNow takes a double, exact to a microsecond; EXTRACT has numerics, which cost a lone caller a tenth of its time.
	postgresNow = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint"
	// postgresBound has the server end this transaction, and give the row to others, when its process stands still in it for a sixth of
	// the owner's TTL, so that the owner can still renew. It adds nothing, so that it costs no round trip.
	postgresBound = " + 0 * length(set_config('idle_in_transaction_session_timeout', GREATEST(250, LEAST(1000, ttl / 6000))::text, true))"
	// mysqlNow does not pass through a time zone: UNIX_TIMESTAMP() would, and be wrong for an hour in autumn.
	mysqlNow = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
	// sqliteNow counts milliseconds, which is what SQLite has.
	sqliteNow = "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"
)

// ofUnlocked changes those of some rows that nobody else has locked (rule D10). It is one statement: nothing stays locked between two.
// MySQL merges no derived table that has a LIMIT, and returns nothing.
func (d Dialect) ofUnlocked(rows, table, id, set, returning string) string {
	switch d {
	case MySQL:
		return "UPDATE " + mysqlUnlocked(rows, table, id) + " SET " + set
	case SQLite: // locks no rows
		return "UPDATE " + table + " SET " + set + " WHERE " + id + " IN (" + rows + ")"
	}
	return "WITH u AS MATERIALIZED (" + rows + " FOR UPDATE SKIP LOCKED) UPDATE " + table + " l SET " + set + " FROM u WHERE l." + id +
		" = u.id RETURNING " + returning
}

// deleteUnlocked deletes those of some rows of locks.
func (d Dialect) deleteUnlocked(rows string) string {
	switch d {
	case MySQL:
		return "DELETE l FROM " + mysqlUnlocked(rows, "{locks}", "name")
	case SQLite:
		return "DELETE FROM {locks} WHERE name IN (" + rows + ")"
	}
	return "WITH u AS MATERIALIZED (" + rows + " FOR UPDATE SKIP LOCKED) DELETE FROM {locks} l USING u WHERE l.name = u.id"
}

func mysqlUnlocked(rows, table, id string) string {
	index := map[string]string{"name": "PRIMARY", "token": "token"}[id]
	return "(" + rows + " LIMIT 4096 FOR UPDATE SKIP LOCKED) u STRAIGHT_JOIN " + table + " l FORCE INDEX (" + index + ") ON l." + id + " = u.id"
}

// of makes a query of a template.
func (st *statements) of(template string) query { return st.d.compile(st.text(template)) }

// list fills the lists into a statement. Their lengths are rounded up to powers of two by repeating the last one, so that
// there are few different statements for the server, and the driver, to prepare.
func (st *statements) list(text string, lists ...[]string) (string, []any) {
	var args []any
	for _, l := range lists {
		n := 1
		for n < len(l) {
			n *= 2
		}
		text = strings.Replace(text, "{list}", st.d.marks(len(args)+1, n), 1)
		for i := range n {
			args = append(args, l[min(i, len(l)-1)])
		}
	}
	return text, args
}

// The statements around a transaction.
//
// MySQL's has the server roll it back when the process stands still in it for a second, and give up the wait for a row as soon,
// though the client may have gone: else it would go on waiting on a connection that nobody uses. It costs no round trip: autocommit is
// turned off with that, and turning it on commits. The session has its own bounds before and after. The default of its isolation is
// repeatable reads, whose snapshot is made by the first read without a lock: the one of the queue, after we have the row's lock.
//
// In SQLite a transaction that begins with a read may not be able to write later.
const (
	mysqlBegin = "/* BEGIN */ SET @wllock_wait = @@SESSION.wait_timeout, @wllock_lock = @@SESSION.innodb_lock_wait_timeout, autocommit = 0, " +
		"SESSION wait_timeout = 1, SESSION innodb_lock_wait_timeout = 1"
	mysqlCommit  = "/* COMMIT */ SET autocommit = 1, SESSION wait_timeout = @wllock_wait, SESSION innodb_lock_wait_timeout = @wllock_lock"
	sqliteBegin  = "BEGIN IMMEDIATE"
	sqliteCommit = "COMMIT"
)

// The flaws are asked for in one statement.
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
		{"the character set", "HEX('" + sample + "') <> '" + sampleHex + "'", "CONCAT(@@character_set_client, ' to ', @@character_set_connection)", "give the DSN charset=utf8mb4"},
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
		{"search_path", "'{schema}' = '' AND current_setting('search_path') <> (SELECT reset_val FROM pg_settings WHERE name = 'search_path')",
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
  WHERE table_schema = COALESCE(NULLIF('{schema}', ''), DATABASE()) AND table_name IN ('{prefix}_locks', '{prefix}_waiters', '{prefix}_meta') AND engine <> 'InnoDB'`
	postgresForeign = ` FROM pg_class c WHERE c.oid IN (to_regclass('{locks}'), to_regclass('{waiters}'), to_regclass('{meta}'))
  AND (c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p' OR row_security_active(c.oid))`
	sqliteFile = " AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' AND file <> '')" // it is not in memory

	// sample is a name that only an unchanged one equals: characters of two and of four bytes.
	sample, sampleHex = "\u00e9\U0001f98a", "C3A9F09FA68A"
)

// postgresShort is the condition that statements end too early by a setting, which need not exist.
func postgresShort(setting string) string {
	return "(SELECT setting::bigint BETWEEN 1 AND 999 FROM pg_settings WHERE name = '" + setting + "')"
}
