package recipes_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
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

// podVariable tells this program to be a pod: the database, where its locks are, and whether to lock.
const podVariable = "RECIPES_POD"

// engine is a database that is migrated, with the locks in the same kind.
type engine struct {
	driver  string
	dialect goose.Dialect
	open    func(locks string) (distributed.Backend, error)
	slow    string // a statement that takes some milliseconds
	more    fstest.MapFS
}

var engines = map[string]engine{
	"postgres": {
		"pgx", goose.DialectPostgres, func(url string) (distributed.Backend, error) {
			if err := postgres.Migrate(context.Background(), url); err != nil {
				return nil, err
			}
			return postgres.Open(url)
		}, "SELECT pg_sleep(0.02);",
		fstest.MapFS{"4_index.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY i ON applied (version);\nINSERT INTO applied VALUES (4);")}},
	},
	"sqlite": {
		"sqlite", goose.DialectSQLite3, func(url string) (distributed.Backend, error) { return sqlite.Open(url) },
		"CREATE TABLE t%[1]d AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i FROM n;",
		fstest.MapFS{"4_table.sql": {Data: []byte("-- +goose Up\nINSERT INTO applied VALUES (4);")}},
	},
}

// files are four migrations.
func (e engine) files() fstest.MapFS {
	all := maps.Clone(e.more)
	for v := 1; v < 4; v++ {
		slow := strings.ReplaceAll(e.slow, "%[1]d", fmt.Sprint(v))
		all[fmt.Sprintf("%d_step.sql", v)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\n%s\nINSERT INTO applied VALUES (%d);", slow, v)}
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
	if field[2] == "unlocked" {
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

func TestPodsMigrateOnce(t *testing.T) {
	testscope.Long(t, "starts thirty processes")
	for name, database := range map[string]func(t *testing.T) (url, locks string){
		"postgres": func(t *testing.T) (url, locks string) {
			url = dbtest.SharedPostgres(t).URL()
			return url, url
		},
		"sqlite": func(t *testing.T) (url, locks string) {
			dir := t.TempDir()
			return "file:" + filepath.Join(dir, "data.db") + "?_pragma=busy_timeout(10000)", "sqlite://" + filepath.Join(dir, "locks.db")
		},
	} {
		// run returns how often each migration was applied.
		run := func(t *testing.T, pods int, locked bool) (applied []int, failed []string) {
			url, locks := database(t)
			db, err := sql.Open(engines[name].driver, url)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			_, err = db.ExecContext(t.Context(), "CREATE TABLE applied (version int)")
			require.NoError(t, err)
			if !locked {
				locks = "unlocked"
			}
			failed = start(t, pods, name, url, locks)
			applied = make([]int, 4)
			for i := range applied {
				require.NoError(t, db.QueryRowContext(t.Context(), fmt.Sprint("SELECT count(*) FROM applied WHERE version = ", i+1)).Scan(&applied[i]))
			}
			return applied, failed
		}
		t.Run(name, func(t *testing.T) {
			applied, failed := run(t, 30, true)
			require.Empty(t, failed)
			require.Equal(t, []int{1, 1, 1, 1}, applied)
		})
		t.Run(name+" without the lock", func(t *testing.T) { // or the other one proves nothing
			applied, failed := run(t, 5, false)
			t.Log(applied, failed)
			if len(failed) == 0 {
				require.NotEqual(t, []int{1, 1, 1, 1}, applied)
			}
		})
	}
}
