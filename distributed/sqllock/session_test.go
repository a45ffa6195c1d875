package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
)

// A pool whose sessions would break a promise is refused before the first grant, and the error names the setting.
func TestSessionsThatCannotKeepLocks(t *testing.T) {
	for name, c := range map[string]struct {
		params map[string]string
		want   error
	}{
		"not committed": {map[string]string{"autocommit": "0"}, errNotCommitted},
		"chained":       {map[string]string{"completion_type": "1"}, errChained},
		"other names":   {map[string]string{"character_set_connection": "latin1"}, errNames},
		"fewer names":   {map[string]string{"collation_connection": "utf8mb3_general_ci"}, errNames},
		"latin1, both":  {map[string]string{"character_set_connection": "latin1", "character_set_client": "latin1"}, nil},
		"utf8mb3, both": {map[string]string{"character_set_connection": "utf8mb3", "character_set_client": "utf8mb3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connector := myConnector(t, c.params)
			migrated(t, &database{dialect: MySQL, connector: func() driver.Connector {
				return &settled{connector, "SET autocommit=1, completion_type=0, character_set_connection=utf8mb4, character_set_client=utf8mb4"}
			}})
			db := sql.OpenDB(connector)
			t.Cleanup(func() { _ = db.Close() })
			refuses(t, db, MySQL, c.want)
		})
	}
}

func TestSessionsOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(dbtest.SharedPostgres(t).URL())
	require.NoError(t, err)
	config.RuntimeParams["client_encoding"] = "LATIN1"
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	refuses(t, db, PostgreSQL, errNames)
}

// refuses: Ping, Migrate and requests all say why.
func refuses(t *testing.T, db *sql.DB, d Dialect, want error) {
	t.Helper()
	b, err := New(db, d)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	_, _, err = b.Enter(t.Context(), distributed.Request{Key: "é", Instance: "i", TTL: time.Minute})
	for _, err := range []error{err, b.Ping(t.Context()), Migrate(t.Context(), db, d)} {
		require.ErrorIs(t, err, want)
		if want != nil {
			require.ErrorIs(t, err, distributed.ErrRefused)
		}
	}
}

// settled sets a session right that its connector has set otherwise.
type settled struct {
	driver.Connector
	text string
}

func (c *settled) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err == nil {
		_, err = conn.(driver.ExecerContext).ExecContext(ctx, c.text, nil)
	}
	return conn, err
}

// A Backend asks once, however many locks it takes. What only costs, but breaks nothing, is a warning.
func TestSessionsAreAskedOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		var asked, warnings atomic.Int64
		d.wire.logTo(func(text string) {
			if strings.Contains(text, "@@autocommit") || strings.Contains(text, "client_encoding") {
				asked.Add(1)
			}
		})
		b := d.backend(t, WithLogger(slog.New(counting{&warnings})))
		for range 3 {
			require.NoError(t, enter(t, b, "k").Release(t.Context()))
		}
		if d.dialect == SQLite {
			require.Zero(t, asked.Load())
			return
		}
		require.EqualValues(t, 1, asked.Load())
		if d.dialect == MySQL {
			require.EqualValues(t, 1, warnings.Load(), "of innodb_lock_wait_timeout, which is the server's")
		}
	})
}

// counting counts records.
type counting struct{ n *atomic.Int64 }

func (c counting) Enabled(context.Context, slog.Level) bool { return true }
func (c counting) Handle(context.Context, slog.Record) error {
	c.n.Add(1)
	return nil
}
func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c counting) WithGroup(string) slog.Handler      { return c }

// After a switch-over the name leads to the new primary, and the old one, which only reads now, keeps its connections open: they are not
// used for long. No statement can be prepared here, so each is sent as text.
func TestSwitchOverToAnotherServer(t *testing.T) {
	t.Parallel()
	old, fresh := newSQLite(t), newSQLite(t)
	name := &movingName{to: old.connector(), conns: make(map[int]int)}
	db := sql.OpenDB(name)
	db.SetMaxIdleConns(5)
	t.Cleanup(func() { _ = db.Close() })
	var conns []*sql.Conn
	for range 5 {
		c, err := db.Conn(t.Context())
		require.NoError(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	b, err := New(db, SQLite)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	held := enter(t, b, "k")
	require.NoError(t, held.Release(t.Context()))
	name.move(fresh.connector())
	require.Eventually(t, func() bool {
		l, _, err := b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "i", TTL: time.Minute})
		if err != nil {
			require.ErrorIs(t, err, distributed.ErrRefused, "an answer, no silence")
			return false
		}
		require.NoError(t, l.Release(t.Context()))
		return true
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return name.open(0) == 0 }, time.Minute, time.Millisecond, "connections to the old server")
}

// movingName connects to a server that can be changed. The connections of before then only read.
type movingName struct {
	mu    sync.Mutex // guards all below
	to    driver.Connector
	at    int         // the server
	conns map[int]int // open, by the server
}

func (m *movingName) move(to driver.Connector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to, m.at = to, m.at+1
}

func (m *movingName) open(at int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conns[at]
}

func (m *movingName) Driver() driver.Driver { return &sqlite.Driver{} }

func (m *movingName) Connect(ctx context.Context) (driver.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.to.Connect(ctx)
	if err != nil {
		return nil, err
	}
	m.conns[m.at]++
	return &namedConn{c.(liteConn), m, m.at}, nil
}

type liteConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
}

type namedConn struct {
	liteConn
	name *movingName
	at   int
}

func (c *namedConn) refusal(text string) error {
	c.name.mu.Lock()
	defer c.name.mu.Unlock()
	if c.at != c.name.at && !strings.HasPrefix(text, "SELECT") {
		return &mysql.MySQLError{Number: 1290, Message: "running with the --read-only option"}
	}
	return nil
}

func (c *namedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.refusal(text); err != nil {
		return nil, err
	}
	return c.liteConn.ExecContext(ctx, text, args)
}

func (c *namedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.refusal(text); err != nil {
		return nil, err
	}
	return c.liteConn.QueryContext(ctx, text, args)
}

func (c *namedConn) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return nil, errors.New("nothing is prepared here")
}

func (c *namedConn) Close() error {
	c.name.mu.Lock()
	c.name.conns[c.at]--
	c.name.mu.Unlock()
	return c.liteConn.Close()
}

// Who prepares statements behind a pooler that keeps no sessions is told what to change.
func TestPoolerIsNamed(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"42P05", "26000"} {
		err := explain("enter", stateError(state))
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "default_query_exec_mode=exec")
	}
}

type stateError string

func (e stateError) Error() string    { return "prepared statement" }
func (e stateError) SQLState() string { return string(e) }

// A schema may have a word of SQL for a name.
func TestSchemaIsQuoted(t *testing.T) {
	for name, quote := range dbtest.Tested(map[string]string{"postgres": `"`, "mariadb": "`", "sqlite": `"`}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, schema := databases[name](t), "order"
			if d.dialect == SQLite {
				schema = "main"
			}
			b := d.backend(t, WithSchema(schema))
			if d.dialect != SQLite {
				_, err := b.db.ExecContext(t.Context(), "CREATE SCHEMA "+quote+schema+quote)
				require.NoError(t, err)
				t.Cleanup(func() {
					_, _ = b.db.ExecContext(context.Background(), "DROP SCHEMA "+quote+schema+quote)
				})
			}
			require.NoError(t, Migrate(t.Context(), b.db, d.dialect, WithSchema(schema)))
			require.NoError(t, b.Ping(t.Context()))
			require.NoError(t, enter(t, b, "k").Release(t.Context()))
		})
	}
}

// Other code of the application leaves a session of the pool looking elsewhere, for the tables of a tenant. A Backend has found its
// tables before, and stays with them; one that meets such a session first refuses it.
func TestSessionThatOthersUsed(t *testing.T) {
	for name, c := range dbtest.Tested(map[string]struct{ quote, elsewhere string }{
		"postgres": {`"`, "SET search_path = tenant"}, "mariadb": {"`", "USE tenant"},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := databases[name](t)
			if d.dialect == MySQL {
				c.elsewhere += strings.ToLower(rand.Text()) // the server is shared
			}
			schema := strings.Fields(c.elsewhere)[len(strings.Fields(c.elsewhere))-1]
			db := d.open()
			db.SetMaxOpenConns(1) // so that all use the same session
			t.Cleanup(func() { _ = db.Close() })
			run := func(text string) {
				_, err := db.ExecContext(context.WithoutCancel(t.Context()), text)
				require.NoError(t, err)
			}
			run("CREATE SCHEMA " + schema)
			if d.dialect == MySQL {
				t.Cleanup(func() { run("DROP SCHEMA " + schema) })
			}
			require.NoError(t, Migrate(t.Context(), db, d.dialect, WithSchema(schema)))
			b, err := New(db, d.dialect)
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.Close() })
			require.NoError(t, enter(t, b, "another").Release(t.Context()))
			run(c.elsewhere)
			held := enter(t, b, "k")
			_, _, err = d.backend(t).Enter(t.Context(), distributed.Request{Key: "k", Instance: "i", TTL: time.Minute, NoWait: true})
			require.ErrorIs(t, err, distributed.ErrHeld)
			require.NoError(t, b.Ping(t.Context()))
			require.NoError(t, held.Release(t.Context()))

			late, err := New(db, d.dialect)
			require.NoError(t, err)
			t.Cleanup(func() { _ = late.Close() })
			_, _, err = late.Enter(t.Context(), distributed.Request{Key: "k", Instance: "i", TTL: time.Minute})
			require.ErrorIs(t, err, errMoved)
			require.ErrorIs(t, err, distributed.ErrRefused)
			require.ErrorIs(t, Migrate(t.Context(), db, d.dialect), errMoved)
			told, err := New(db, d.dialect, WithSchema(schema))
			require.NoError(t, err)
			t.Cleanup(func() { _ = told.Close() })
			require.NoError(t, enter(t, told, "k").Release(t.Context()))
		})
	}
}

// A process that has prepared its statements goes on where no further one can be prepared.
func TestNoMoreStatementsCanBePrepared(t *testing.T) {
	t.Parallel()
	b := newSQLite(t).backend(t)
	enough := &mysql.MySQLError{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"}
	require.True(t, unprepared(enough))
	require.Equal(t, crowded, kindOf(enough), "a pool that prepares every statement")
	require.False(t, unprepared(nil))
	require.False(t, unprepared(&mysql.MySQLError{Number: 1213}))
	full := sql.OpenDB(fullConnector{enough})
	t.Cleanup(func() { _ = full.Close() })
	stmt, err := full.PrepareContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	kept := keptQuerier{b, &prepared{stmt: stmt}}
	rows, err := kept.QueryContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	_, err = kept.ExecContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
}

// fullConnector makes connections that prepare statements and refuse to run them.
type fullConnector struct{ err error }

func (c fullConnector) Connect(context.Context) (driver.Conn, error) { return fullConn(c), nil }
func (c fullConnector) Driver() driver.Driver                        { return nil }

type fullConn struct{ err error }

func (c fullConn) Prepare(string) (driver.Stmt, error) { return fullStmt(c), nil }
func (c fullConn) Close() error                        { return nil }
func (c fullConn) Begin() (driver.Tx, error)           { return nil, c.err }

type fullStmt struct{ err error }

func (s fullStmt) Close() error                               { return nil }
func (s fullStmt) NumInput() int                              { return 0 }
func (s fullStmt) Exec([]driver.Value) (driver.Result, error) { return nil, s.err }
func (s fullStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, s.err }
