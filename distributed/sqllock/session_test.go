package sqllock

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
)

// setups are databases as applications have set them up.
var setups = map[string]func(t *testing.T) *database{
	"postgres, simple protocol": pgWith(func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }),
	"postgres, exec":            pgWith(func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec }),
	"postgres, serializable":    pgWith(func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "serializable" }),
	"postgres, repeatable read": pgWith(func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "repeatable read" }),
	"mariadb, serializable":     myWith(func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'"} }),
	"mariadb, read committed":   myWith(func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'READ-COMMITTED'"} }),
	"mariadb, snapshots":        myWith(func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": "ON"} }),
	"mariadb, found rows":       myWith(func(c *mysql.Config) { c.InterpolateParams, c.ClientFoundRows = false, true }),
	"sqlite, journal":           func(t *testing.T) *database { return newFile(t, "journal_mode(DELETE)", "busy_timeout(0)") },
	"sqlite, busy 0":            func(t *testing.T) *database { return newFile(t, "journal_mode(WAL)", "busy_timeout(0)") },
}

func pgWith(change func(*pgx.ConnConfig)) func(t *testing.T) *database {
	return func(t *testing.T) *database { return newPostgres(t).withPg(change) }
}

func myWith(change func(*mysql.Config)) func(t *testing.T) *database {
	return func(t *testing.T) *database { return newMariaDB(t).withMy(change) }
}

// withPg is the same database through connections with other settings. So is withMy.
func (d *database) withPg(change func(*pgx.ConnConfig)) *database {
	c := pgConfig(d.url)
	change(c)
	return d.over(stdlib.GetConnector(*c))
}

func (d *database) withMy(change func(*mysql.Config)) *database {
	c := myConfig(d.url)
	change(c)
	return d.over(must(mysql.NewConnector(c)))
}

// Exclusion and the order of fences do not depend on the driver's protocol, the isolation level, or how SQLite's file is opened.
func TestSetups(t *testing.T) {
	parallel(t, dbtest.Tested(setups), func(t *testing.T, _ string, open func(*testing.T) *database) {
		d := open(t)
		var inside atomic.Int32
		var entered int
		var fence uint64
		var all sync.WaitGroup
		for range 6 {
			b := d.backend(t)
			all.Go(func() {
				for range 5 {
					l := acquired(t, b, "k", by(b.process))
					if l == nil {
						return
					}
					assert.EqualValues(t, 1, inside.Add(1), "callers inside")
					next, _ := l.NextFence()
					assert.Greater(t, next, fence)
					fence = next
					entered++
					inside.Add(-1)
					assert.NoError(t, l.Release(t.Context()))
				}
			})
		}
		all.Wait()
		require.Equal(t, 30, entered)
	})
}

// A setting of the sessions of a pool, and which flaw it is to a lock; "": none, so that every kind of lock works.
var settingsOfSessions = map[Dialect]map[string]string{
	MySQL: {
		"autocommit=0": "autocommit", "completion_type=1": "completion_type", "tx_read_only=1": "tx_read_only",
		"sql_safe_updates=1": "sql_safe_updates", "sql_select_limit=2": "sql_select_limit", "sql_select_limit=0": "sql_select_limit",
		"sql_big_selects=0": "sql_big_selects", "max_join_size=1000": "sql_big_selects", "max_statement_time=0.9": "max_statement_time",
		"max_statement_time=60": "", "sql_mode='EMPTY_STRING_IS_NULL'": "sql_mode", "sql_mode='SIMULTANEOUS_ASSIGNMENT'": "sql_mode",
		"sql_mode=''": "", "sql_mode='TRADITIONAL,ANSI'": "", "sql_mode='ORACLE'": "sql_mode", "sql_mode='NO_BACKSLASH_ESCAPES'": "",
		"sql_mode='NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH,TIME_ROUND_FRACTIONAL,NO_AUTO_VALUE_ON_ZERO'": "",
		"unique_checks=0": "unique_checks", "timestamp=1": "timestamp", "time_zone='+05:30'": "",
		"character_set_connection=latin1": "the character set", "collation_connection=utf8mb3_general_ci": "the character set",
		"character_set_connection=latin1, character_set_client=latin1": "", "character_set_connection=utf8mb3, character_set_client=utf8mb3": "",
		"character_set_results=latin1": "", "collation_connection=utf8mb4_turkish_ci": "", "collation=utf8mb4_unicode_ci": "", "innodb_lock_wait_timeout=1": "",
		"tx_isolation='SERIALIZABLE'": "", "tx_isolation='READ-UNCOMMITTED'": "", "innodb_snapshot_isolation=1": "", "lock_wait_timeout=1": "",
		"default_storage_engine=Aria": "", "sql_auto_is_null=1": "", "div_precision_increment=0": "", "group_concat_max_len=4": "",
		"max_sort_length=8": "", "optimizer_switch='index_merge=off,materialization=off,semijoin=off'": "", "optimizer_search_depth=1": "",
		"in_predicate_conversion_threshold=2": "", "eq_range_index_dive_limit=1": "", "low_priority_updates=1": "", "sql_buffer_result=1": "",
		"big_tables=1": "", "max_error_count=0": "", "sql_notes=0": "", "foreign_key_checks=0": "", "lc_time_names='ja_JP'": "", "old_mode=''": "",
	},
	PostgreSQL: {
		"default_transaction_read_only=on": "default_transaction_read_only", "statement_timeout=500": "statement_timeout", "statement_timeout=60s": "",
		"client_encoding=LATIN1": "client_encoding", "lock_timeout=1s": "", "idle_in_transaction_session_timeout=1s": "", "idle_session_timeout=1s": "",
		"default_transaction_isolation=serializable": "", "default_transaction_isolation=repeatable read": "", "default_transaction_deferrable=on": "",
		"row_security=off": "", "synchronous_commit=off": "", "session_replication_role=replica": "", "standard_conforming_strings=off": "",
		"transform_null_equals=on": "", "backslash_quote=off": "", "quote_all_identifiers=on": "", "array_nulls=off": "", "bytea_output=escape": "",
		"DateStyle=German, DMY": "", "IntervalStyle=sql_standard": "", "TimeZone=Asia/Kathmandu": "", "extra_float_digits=-15": "", "lc_numeric=C": "",
		"plan_cache_mode=force_generic_plan": "", "enable_seqscan=off": "", "enable_indexscan=off": "", "enable_bitmapscan=off": "", "work_mem=64kB": "",
		"from_collapse_limit=1": "", "join_collapse_limit=1": "", "geqo_threshold=2": "",
	},
	SQLite: {
		"query_only(1)": "query_only", "journal_mode(OFF)": "journal_mode", "journal_mode(MEMORY)": "journal_mode",
		"locking_mode(EXCLUSIVE)": "locking_mode", "journal_mode(WAL)": "", "journal_mode(DELETE)": "", "journal_mode(TRUNCATE)": "",
		"journal_mode(PERSIST)": "", "synchronous(OFF)": "", "synchronous(EXTRA)": "", "busy_timeout(0)": "", "read_uncommitted(1)": "",
		"case_sensitive_like(1)": "", "reverse_unordered_selects(1)": "", "recursive_triggers(1)": "", "foreign_keys(1)": "",
		"ignore_check_constraints(1)": "", "automatic_index(0)": "", "cache_size(1)": "", "cache_spill(0)": "", "temp_store(2)": "", "mmap_size(1000000)": "",
		"secure_delete(1)": "", "trusted_schema(0)": "", "cell_size_check(1)": "", "wal_autocheckpoint(1)": "", "full_column_names(1)": "",
		"legacy_alter_table(1)": "", "threads(4)": "", "count_changes(1)": "",
	},
}

// Every setting of a pool's sessions either leaves locks as they are, or is refused by its name before the first grant.
func TestSettingsOfSessions(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for setting, flaw := range settingsOfSessions[d.dialect] {
			t.Run(setting, func(t *testing.T) {
				if d := d.with(t, setting); flaw != "" {
					refuses(t, d, flaw)
				} else {
					lockAll(t, d, setting)
				}
			})
		}
	})
}

// with is the database, of SQLite another one, through sessions with that setting.
func (d *database) with(t *testing.T, setting string) *database {
	t.Helper()
	name, value, _ := strings.Cut(setting, "=")
	switch d.dialect {
	case PostgreSQL:
		return d.withPg(func(c *pgx.ConnConfig) { c.RuntimeParams[name] = value })
	case MySQL:
		return d.withMy(func(c *mysql.Config) {
			if name == "collation" {
				c.Collation = value
				return
			}
			c.Params = map[string]string{name: value}
		})
	}
	file, _, _ := strings.Cut(newSQLite(t).url, "?")
	return at(file + "?_pragma=busy_timeout(200)&_pragma=" + setting)
}

// refuses: Ping, Migrate and requests all say why.
func refuses(t *testing.T, d *database, flaw string) {
	t.Helper()
	b := d.backend(t)
	_, _, err := try(t.Context(), b, "k")
	for _, err := range []error{err, b.Ping(t.Context()), Migrate(t.Context(), b.db, d.dialect)} {
		require.ErrorIs(t, err, errSession)
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "cannot keep locks: "+flaw)
	}
}

// lockAll takes locks of every kind, renews and releases them, has them waited for, and looks at them.
func lockAll(t *testing.T, d *database, as string) {
	t.Helper()
	b, other := d.backend(t), d.backend(t)
	require.NoError(t, Migrate(t.Context(), b.db, d.dialect))
	require.NoError(t, b.Ping(t.Context()))
	key := func(i int) string { return fmt.Sprint(as, "é'\\", i) }
	var leases []distributed.Lease
	for i := range 4 {
		leases = append(leases, enter(t, b, key(i)))
	}
	renewAll(t, leases)
	next := queue(t, other, key(0))
	info, err := other.Inspect(t.Context(), key(0))
	require.NoError(t, err)
	require.Len(t, info.Waiters, 1)
	free(t, leases[0])
	free(t, awaited(t, next))
	_, _, err = try(t.Context(), other, key(1), noWait)
	require.ErrorIs(t, err, distributed.ErrHeld)
	free(t, enter(t, b, key(1), prevIs(leases[1])))
	for _, as := range []testlocker.Change{reading, permits(2)} {
		one, two := enter(t, b, key(2), as, prevIs(leases[2])), enter(t, other, key(2), as)
		free(t, one)
		free(t, two)
	}
	free(t, leases[3])
}

// renewAll has leases renewed now. One renewal looks at all of them.
func renewAll(t *testing.T, leases []distributed.Lease) {
	t.Helper()
	for _, l := range leases {
		until := l.Until()
		l.RenewBy(time.Now())
		require.Eventually(t, func() bool { return l.Until().After(until) }, time.Minute, time.Millisecond)
	}
}

// Tables that others decide about, or that the server does not keep, are refused.
func TestTablesThatCannotKeepLocks(t *testing.T) {
	type table struct {
		open   func(locktest.TB) *database
		change []string
	}
	parallel(t, map[string]table{
		"MyISAM's heir":      {newMariaDB, []string{"ALTER TABLE {waiters} ENGINE=Aria"}},
		"unlogged":           {newPostgres, []string{"ALTER TABLE {locks} SET UNLOGGED"}},
		"a view":             {newPostgres, []string{"ALTER TABLE {waiters} RENAME TO elsewhere", "CREATE VIEW {waiters} AS SELECT * FROM elsewhere"}},
		"row-level security": {newPostgres, []string{"ALTER TABLE {meta} ENABLE ROW LEVEL SECURITY"}},
	}, func(t *testing.T, name string, c table) {
		d := c.open(t)
		for _, text := range c.change {
			run(t, d.backend(t), text)
		}
		if name == "row-level security" { // which does not hold for a superuser
			d = d.over(connectorOf(accountWithout(t, d, "", "")))
		}
		refuses(t, d, "a table is ")
	})
}

// A Backend asks once, however many locks it takes. What only costs, but breaks nothing, is a warning.
func TestSessionsAreAskedOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		var asked atomic.Int64
		var log testlocker.Log
		d.wire.logTo(func(text string) {
			if strings.Contains(text, "@@autocommit") || strings.Contains(text, "client_encoding") {
				asked.Add(1)
			}
		})
		b := d.backend(t, WithLogger(log.Logger()))
		for range 3 {
			free(t, enter(t, b, "k"))
		}
		if d.dialect == SQLite {
			require.Zero(t, asked.Load())
			return
		}
		require.EqualValues(t, 1, asked.Load())
		if d.dialect == MySQL {
			require.Equal(t, 1, log.Count("level=WARN"), "of innodb_lock_wait_timeout, which is the server's")
		}
	})
}

// Who prepares statements behind a pooler that keeps no sessions is told what to change.
func TestPoolerIsNamed(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"42P05", "26000"} {
		err := explain("enter", &pgconn.PgError{Code: state})
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "default_query_exec_mode=exec")
	}
}

// Other code of the application leaves a session of the pool looking elsewhere, for the tables of a tenant. A Backend has found its
// tables before, and stays with them; one that meets such a session first refuses it.
func TestSessionThatOthersUsed(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		schema, elsewhere := "tenant"+strings.ToLower(rand.Text()), "SET search_path = " // the server is shared
		if d.dialect == MySQL {
			elsewhere = "USE "
		}
		db := d.pool(t)
		db.SetMaxOpenConns(1) // so that all use the same session
		exec := func(text string) {
			_, err := db.ExecContext(context.Background(), text)
			require.NoError(t, err)
		}
		exec("CREATE SCHEMA " + schema)
		if d.dialect == MySQL {
			t.Cleanup(func() { exec("DROP SCHEMA " + schema) })
		}
		require.NoError(t, Migrate(t.Context(), db, d.dialect, WithSchema(schema)))
		b := backendOn(t, db, d.dialect)
		free(t, enter(t, b, "another"))
		exec(elsewhere + schema)
		held := enter(t, b, "k")
		_, _, err := try(t.Context(), d.backend(t), "k", noWait)
		require.ErrorIs(t, err, distributed.ErrHeld)
		require.NoError(t, b.Ping(t.Context()))
		free(t, held)

		_, _, err = try(t.Context(), backendOn(t, db, d.dialect), "k")
		for _, err := range []error{err, Migrate(t.Context(), db, d.dialect)} {
			require.ErrorIs(t, err, errSession)
			require.ErrorContains(t, err, "other code has changed")
		}
		free(t, enter(t, backendOn(t, db, d.dialect, WithSchema(schema)), "k"))
	})
}

// Other code sets sql_select_limit in the one session of the pool after locks were taken: no lease that is read behind it is taken for gone,
// and no place.
func TestSelectLimitOfOthers(t *testing.T) {
	t.Parallel()
	d := newMariaDB(t)
	db := d.pool(t)
	db.SetMaxOpenConns(1)
	b := backendOn(t, db, MySQL)
	var leases []distributed.Lease
	var places []distributed.Place
	for i := range 3 {
		leases = append(leases, enter(t, b, fmt.Sprint(i)), enter(t, b, fmt.Sprint("shared", i), reading))
		places = append(places, queue(t, b, "0", by(fmt.Sprint(i))))
	}
	_, err := db.Exec("SET sql_select_limit = 1")
	require.NoError(t, err)
	renewAll(t, leases)
	answered := func(p distributed.Place) bool { return len(p.Granted()) > 0 }
	require.Never(t, func() bool { return slices.ContainsFunc(places, answered) }, 500*time.Millisecond, 10*time.Millisecond)
	for _, l := range leases {
		free(t, l)
	}
	for _, p := range places {
		free(t, awaited(t, p))
	}
}

// A process that has prepared its statements goes on where no further one can be prepared.
func TestNoMoreStatementsCanBePrepared(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	enough := &mysql.MySQLError{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"}
	require.Equal(t, crowded, effectOf(enough), "a pool that prepares every statement")
	refused := 0
	d.wire.filtered(func(s *statement) error {
		if !s.prepared {
			return s.run()
		}
		refused++
		return enough
	})
	b := d.backend(t)
	free(t, enter(t, b, "k", prevIs(enter(t, b, "k"))))
	require.GreaterOrEqual(t, refused, 3, "of each way to a lock")
}

// Tables that a version with another format has made are refused by name: by the first request, by Ping, and by Migrate.
func TestOtherFormatsAreRefused(t *testing.T) {
	parallel(t, dbtest.Tested(setups), func(t *testing.T, _ string, open func(*testing.T) *database) {
		d := open(t)
		run(t, d.backend(t), "UPDATE {meta} SET value = 9 WHERE name = 'version'")
		b := d.backend(t)
		testlocker.RefusesOtherFormats(t, testlocker.Asker{T: t, B: b, TTL: time.Minute}, func(string) {})
		require.ErrorContains(t, b.Ping(t.Context()), "format 9")
		require.ErrorContains(t, Migrate(t.Context(), b.db, b.dialect), "format 9")
	})
}
