package fenced

import (
	"fmt"
	"regexp"
	"strings"
)

// Dialect is the kind of database.
type Dialect uint8

const (
	PostgreSQL Dialect = iota + 1 // 12 or later
	MySQL                         // 8.0 or later, and MariaDB 10.6 or later
	SQLite                        // 3.24 or later
)

// DDL returns the statement that Migrate runs, for programs with migrations of their own. The statement can be repeated.
func DDL(d Dialect, opts ...Option) (string, error) {
	s, err := settingsOf(d, opts)
	if err != nil {
		return "", err
	}
	return s.text(ddl[d]), nil
}

// ddl makes the table. A key has at most 642 bytes: system, name and key.
var ddl = map[Dialect]string{
	PostgreSQL: `CREATE TABLE IF NOT EXISTS {table} (
	lock_key   TEXT COLLATE "C" PRIMARY KEY, -- system:name:key
	writer     BIGINT NOT NULL,              -- the last fence of an exclusive holder that has claimed the key
	reader     BIGINT NOT NULL,              -- the largest of a shared one
	claimed_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50)`,
	MySQL: `CREATE TABLE IF NOT EXISTS {table} (
	lock_key   VARBINARY(700) PRIMARY KEY, -- system:name:key
	writer     BIGINT NOT NULL,            -- the last fence of an exclusive holder that has claimed the key
	reader     BIGINT NOT NULL,            -- the largest of a shared one
	claims     BIGINT NOT NULL,            -- how many there were
	session    BIGINT NOT NULL,            -- the connection of the last one, negative if it was shared
	server     VARCHAR(300) NOT NULL,      -- and its server
	claimed_at DATETIME(6) NOT NULL        -- in UTC
) ENGINE = InnoDB`,
	SQLite: `CREATE TABLE IF NOT EXISTS {table} (
	lock_key   TEXT PRIMARY KEY,  -- system:name:key
	writer     INTEGER NOT NULL,  -- the last fence of an exclusive holder that has claimed the key
	reader     INTEGER NOT NULL,  -- the largest of a shared one
	claimed_at INTEGER NOT NULL   -- in seconds since 1970
) WITHOUT ROWID`,
}

// Claims insert a row, or change one that no later holder has claimed, and leave it locked. One of writer and reader is 0, so their sum is
// the fence.
var (
	claimPostgres = `INSERT INTO {table} AS f (lock_key, writer, reader, claimed_at) VALUES {rows}
ON CONFLICT (lock_key) DO UPDATE SET
	writer = GREATEST(f.writer, EXCLUDED.writer), reader = GREATEST(f.reader, EXCLUDED.reader), claimed_at = EXCLUDED.claimed_at
WHERE f.writer <= EXCLUDED.writer + EXCLUDED.reader AND (EXCLUDED.writer = 0 OR f.reader < EXCLUDED.writer)
RETURNING ` + boundPostgres
	claimSQLite = `INSERT INTO {table} AS f (lock_key, writer, reader, claimed_at) VALUES {rows}
ON CONFLICT (lock_key) DO UPDATE SET
	writer = max(f.writer, excluded.writer), reader = max(f.reader, excluded.reader), claimed_at = excluded.claimed_at
WHERE f.writer <= excluded.writer + excluded.reader AND (excluded.writer = 0 OR f.reader < excluded.writer)`
	// claimMySQL leaves a number as LAST_INSERT_ID: 0, or the larger fence that refuses the claim. Assignments see those before them.
	claimMySQL = `INSERT INTO {table} (lock_key, writer, reader, claims, session, server, claimed_at)
VALUES {row}
ON DUPLICATE KEY UPDATE
	session = IF(LAST_INSERT_ID(IF(writer <= VALUES(writer) + VALUES(reader) AND (VALUES(writer) = 0 OR reader < VALUES(writer)), 0,
		GREATEST(writer, reader))) = 0, VALUES(session), 0),
	writer = IF(session = 0, writer, GREATEST(writer, VALUES(writer))),
	reader = IF(session = 0, reader, GREATEST(reader, VALUES(reader))),
	claims = claims + 1, server = VALUES(server), claimed_at = VALUES(claimed_at)`
	serverMySQL = `CONCAT(@@hostname, ':', @@port, ':', @@server_id)`
)

// boundPostgres lowers two settings until the end of the transaction, to so many milliseconds. A setting of 0 is none.
var boundPostgres = lowered("idle_in_transaction_session_timeout", "{pause}") + ", " + lowered("statement_timeout", "{statement}")

func lowered(setting, most string) string {
	now := "extract(epoch FROM current_setting('" + setting + "')::interval) * 1000"
	return "set_config('" + setting + "', LEAST(NULLIF((" + now + ")::bigint, 0), " + most + "::bigint)::text, true)"
}

var (
	knownRow = map[Dialect]string{
		PostgreSQL: `SELECT writer, reader FROM {table} WHERE lock_key = $1`,
		SQLite:     `SELECT writer, reader FROM {table} WHERE lock_key = ?`,
	}
	sweep = map[Dialect]string{
		PostgreSQL: `DELETE FROM {table} WHERE claimed_at < now() - $1 * interval '1 second'`,
		MySQL:      `DELETE FROM {table} WHERE claimed_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND`,
		SQLite:     `DELETE FROM {table} WHERE claimed_at < CAST(strftime('%s', 'now') AS INTEGER) - ?`,
	}
	forget = map[Dialect]string{
		PostgreSQL: `DELETE FROM {table} WHERE lock_key = $1`,
		MySQL:      `DELETE FROM {table} WHERE lock_key = ?`,
		SQLite:     `DELETE FROM {table} WHERE lock_key = ?`,
	}
)

// settings are those of a Guard.
type settings struct {
	dialect Dialect
	table   string // quoted
	guardOptions
}

// identifier is what WithTable and WithSchema take: nothing of it must be quoted in any dialect.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

func settingsOf(d Dialect, opts []Option) (s settings, err error) {
	if ddl[d] == "" {
		return s, fmt.Errorf("fenced: dialect %d: want PostgreSQL, MySQL or SQLite", d)
	}
	s = settings{dialect: d, guardOptions: guardOptions{table: "wllock_fences"}}
	for _, o := range opts {
		o(&s.guardOptions)
	}
	quote := map[Dialect]string{PostgreSQL: `"`, MySQL: "`", SQLite: `"`}[d]
	for _, name := range []struct{ what, text string }{{"schema", s.schema}, {"table", s.guardOptions.table}} {
		if name.text == "" && name.what == "schema" {
			continue
		}
		if !identifier.MatchString(name.text) {
			return s, fmt.Errorf("fenced: %s %q: want 1 to 63 letters, digits and underscores, with no digit first", name.what, name.text)
		}
		if s.table != "" {
			s.table += "."
		}
		s.table += quote + name.text + quote
	}
	if s.longest < 0 {
		return s, fmt.Errorf("fenced: WithLongestStatement(%v): want a time that is not negative", s.longest)
	}
	return s, nil
}

func (s *settings) text(template string) string {
	return strings.NewReplacer("{table}", s.table, "{server}", serverMySQL).Replace(template)
}

// claimText is the statement that claims so many rows.
func (s *settings) claimText(rows int) string {
	template, row := claimSQLite, "(?, ?, ?, CAST(strftime('%s', 'now') AS INTEGER))"
	if s.dialect == PostgreSQL {
		template = claimPostgres
	}
	all := make([]string, rows)
	for i := range all {
		all[i] = row
		if s.dialect == PostgreSQL {
			all[i] = fmt.Sprintf("($%d::text, $%d::bigint, $%d::bigint, now())", 3*i+1, 3*i+2, 3*i+3)
		}
	}
	return strings.NewReplacer("{table}", s.table, "{rows}", strings.Join(all, ", "),
		"{pause}", fmt.Sprint("$", 3*rows+1), "{statement}", fmt.Sprint("$", 3*rows+2)).Replace(template)
}
