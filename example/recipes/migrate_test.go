package recipes_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testscope"
)

const (
	// podVariable tells this program to be a pod: the kind of its database, the database, and where its locks are.
	podVariable = "RECIPES_POD"
	unlocked    = "none"
)

// engine is a database that is migrated, with the locks in the same kind.
type engine struct {
	driver  string
	dialect goose.Dialect
	where   func(t *testing.T) (url, locks string) // a new one
	open    func(locks string) (distributed.Backend, error)
	slow    string // a statement that takes a while
	last    string // the last migration
}

var engines = map[string]engine{
	"postgres": {
		driver: "pgx", dialect: goose.DialectPostgres,
		where: func(t *testing.T) (url, locks string) {
			url = dbtest.SharedPostgres(t).URL()
			return url, url
		},
		open: func(url string) (distributed.Backend, error) {
			if err := postgres.Migrate(context.Background(), url); err != nil {
				return nil, err
			}
			return postgres.Open(url)
		},
		slow: "SELECT pg_sleep(0.1);",
		last: "-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY i ON applied (version);",
	},
	"sqlite": {
		driver: "sqlite", dialect: goose.DialectSQLite3,
		where: func(t *testing.T) (url, locks string) {
			dir := t.TempDir()
			return "file:" + filepath.Join(dir, "data.db") + "?_pragma=busy_timeout(10000)", "sqlite://" + filepath.Join(dir, "locks.db")
		},
		open: func(url string) (distributed.Backend, error) { return sqlite.Open(url) },
		slow: "CREATE TABLE slow AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n; DROP TABLE slow;",
		last: "-- +goose Up\nCREATE TABLE last (n int);",
	},
}

// files are four migrations, which note that they were applied.
func (e engine) files() fstest.MapFS {
	all := fstest.MapFS{}
	for v := 1; v <= 4; v++ {
		what := "-- +goose Up\n" + e.slow
		if v == 4 {
			what = e.last
		}
		all[fmt.Sprintf("%d_step.sql", v)] = &fstest.MapFile{Data: fmt.Appendf(nil, "%s\nINSERT INTO applied VALUES (%d);", what, v)}
	}
	return all
}

// pod is this program as one of many that start at once. It says when it is ready, and begins when its input ends.
func pod(args string) error {
	field := strings.Fields(args)
	e := engines[field[0]]
	db, err := sql.Open(e.driver, field[1])
	if err != nil {
		return err
	}
	migrations, err := goose.NewProvider(e.dialect, db, e.files(), goose.WithVerbose(false))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if field[2] == unlocked {
		_, err = migrations.Up(context.Background())
		return err
	}
	backend, err := e.open(field[2])
	if err != nil {
		return err
	}
	l, err := wllock.New("shop", backend, wllock.WithOwnedBackend())
	if err != nil {
		return err
	}
	err = recipes.Migrate(context.Background(), l, "shop", migrations)
	return errors.Join(err, l.Close(context.Background()))
}

// start starts so many pods at once, and returns what those said that failed.
func start(t *testing.T, pods int, args ...string) (failed []string) {
	t.Helper()
	all := make([]*exec.Cmd, pods)
	begin := make([]io.Closer, pods)
	said := make([]strings.Builder, pods)
	for i := range all {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env, c.Stderr = append(os.Environ(), podVariable+"="+strings.Join(args, " ")), &said[i]
		in, err := c.StdinPipe()
		require.NoError(t, err)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		all[i], begin[i] = c, in
	}
	began := time.Now()
	for _, in := range begin {
		require.NoError(t, in.Close())
	}
	for i, c := range all {
		if err := c.Wait(); err != nil {
			failed = append(failed, fmt.Sprint(err, ": ", said[i].String()))
		}
	}
	t.Logf("%d pods, %v, %d failed", pods, time.Since(began).Round(time.Millisecond), len(failed))
	return failed
}

// migrate has so many pods migrate a new database, and returns how often each migration was applied.
func migrate(t *testing.T, kind string, pods int, locked bool) (applied [4]int, failed []string) {
	t.Helper()
	url, locks := engines[kind].where(t)
	db, err := sql.Open(engines[kind].driver, url)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE applied (version int)")
	require.NoError(t, err)
	if !locked {
		locks = unlocked
	}
	failed = start(t, pods, kind, url, locks)
	for i := range applied {
		require.NoError(t, db.QueryRowContext(t.Context(), fmt.Sprint("SELECT count(*) FROM applied WHERE version = ", i+1)).Scan(&applied[i]))
	}
	return applied, failed
}

func TestPodsMigrateOnce(t *testing.T) {
	testscope.Long(t, "starts thirty processes")
	for kind := range engines {
		t.Run(kind, func(t *testing.T) {
			applied, failed := migrate(t, kind, 30, true)
			require.Empty(t, failed)
			require.Equal(t, [4]int{1, 1, 1, 1}, applied)
		})
		t.Run(kind+" without the lock", func(t *testing.T) { // or the other one proves nothing
			applied, failed := migrate(t, kind, 8, false)
			t.Log(applied)
			require.False(t, len(failed) == 0 && applied == [4]int{1, 1, 1, 1})
		})
	}
}
