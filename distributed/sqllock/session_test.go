package sqllock

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
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
		"safe updates":  {map[string]string{"sql_safe_updates": "1"}, errSafe},
		"cut off":       {map[string]string{"sql_select_limit": "2"}, errCutOff},
		"nothing":       {map[string]string{"sql_select_limit": "0"}, errCutOff},
		"small selects": {map[string]string{"max_join_size": "1000"}, errSmallSelects},
		"'' is NULL":    {map[string]string{"sql_mode": "'EMPTY_STRING_IS_NULL'"}, errMode},
		"simultaneous":  {map[string]string{"sql_mode": "'SIMULTANEOUS_ASSIGNMENT'"}, errMode},
		"latin1, both":  {map[string]string{"character_set_connection": "latin1", "character_set_client": "latin1"}, nil},
		"utf8mb3, both": {map[string]string{"character_set_connection": "utf8mb3", "character_set_client": "utf8mb3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMariaDB(t)
			config := myConfig(d.url)
			config.Params = c.params
			refuses(t, d.over(must(mysql.NewConnector(config))), c.want)
		})
	}
	t.Run("other engine", func(t *testing.T) {
		t.Parallel()
		d := newMariaDB(t)
		run(t, d.backend(t), "ALTER TABLE {waiters} ENGINE=Aria")
		refuses(t, d, errEngine)
	})
	t.Run("names of PostgreSQL", func(t *testing.T) {
		t.Parallel()
		d := newPostgres(t)
		config := pgConfig(d.url)
		config.RuntimeParams["client_encoding"] = "LATIN1"
		refuses(t, d.over(stdlib.GetConnector(*config)), errNames)
	})
}

// refuses: Ping, Migrate and requests all say why.
func refuses(t *testing.T, d *database, want error) {
	t.Helper()
	b := d.backend(t)
	_, _, err := try(t.Context(), b, "é")
	for _, err := range []error{err, b.Ping(t.Context()), Migrate(t.Context(), b.db, d.dialect)} {
		require.ErrorIs(t, err, want)
		if want != nil {
			require.ErrorIs(t, err, distributed.ErrRefused)
		}
	}
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
			free(t, enter(t, b, "k"))
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
		require.ErrorIs(t, err, errMoved)
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorIs(t, Migrate(t.Context(), db, d.dialect), errMoved)
		free(t, enter(t, backendOn(t, db, d.dialect, WithSchema(schema)), "k"))
	})
}

// A process that has prepared its statements goes on where no further one can be prepared.
func TestNoMoreStatementsCanBePrepared(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	enough := &mysql.MySQLError{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"}
	require.Equal(t, crowded, kindOf(enough), "a pool that prepares every statement")
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
