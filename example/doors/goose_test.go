package doors

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

// openSQLite opens a database in a file, as one more process does.
func openSQLite(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newSQLite returns a file with a table of the migrations that were applied.
func newSQLite(t *testing.T) (file string, db *sql.DB) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "data.db")
	db = openSQLite(t, file)
	_, err := db.ExecContext(t.Context(), `CREATE TABLE applied (version int)`)
	require.NoError(t, err)
	return file, db
}

// applied are the versions of the migrations that were applied, each as often as it was.
func applied(t *testing.T, db *sql.DB) (versions []int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT version FROM applied ORDER BY version`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var v int
		require.NoError(t, rows.Scan(&v))
		versions = append(versions, v)
	}
	require.NoError(t, rows.Err())
	return versions
}

// slowly is a migration that takes some milliseconds and says that it was applied.
const slowly = `INSERT INTO applied WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT %d FROM n WHERE i = 20000;`

// migrations are three in the form of goose.
func gooseMigrations() fs.FS {
	files := fstest.MapFS{}
	for v := 1; v <= 3; v++ {
		files[fmt.Sprintf("%d_step.sql", v)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\n"+slowly+"\n", v)}
	}
	return files
}

func openGoose(t *testing.T, l *wllock.Locker, db *sql.DB, files fs.FS, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	door := &Goose{Locker: l, Name: "migrations", Key: "data.db"}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, append(opts, goose.WithLocker(door))...)
	require.NoError(t, err)
	return p
}

func TestGooseAppliesEachMigrationOnce(t *testing.T) {
	t.Parallel()
	_, faults := wllocktest.NewWithFaults(t)
	file, db := newSQLite(t)
	var all sync.WaitGroup
	for range 5 {
		p := openGoose(t, faults.Process(), openSQLite(t, file), gooseMigrations())
		all.Go(func() {
			if _, err := p.Up(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, []int{1, 2, 3}, applied(t, db))
}

// losing is a migration in whose transaction the lock is lost. It waits for the end of its context, or not.
func losing(faults *wllocktest.Faults, wait bool) goose.ProviderOption {
	return goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(slowly, 1)); err != nil {
			return err
		}
		faults.Lose("migrations", "data.db")
		if wait {
			<-ctx.Done()
		}
		return ctx.Err()
	}}, nil))
}

func TestGooseSaysAtTheEndThatTheLockWasLost(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	_, db := newSQLite(t)
	_, err := openGoose(t, l, db, nil, losing(faults, false)).Up(t.Context())
	require.ErrorIs(t, err, wllock.ErrLeaseLost)
	require.Equal(t, []int{1}, applied(t, db))
}

func TestGooseInsideDoStopsWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	_, db := newSQLite(t)
	p := openGoose(t, l, db, nil, losing(faults, true))
	err := l.Do(t.Context(), "migrations", "data.db", func(ctx context.Context) error {
		_, err := p.Up(ctx)
		require.ErrorIs(t, err, context.Canceled)
		return err
	}, wllock.WithLockTimeMax(0))
	require.ErrorIs(t, err, wllock.ErrLeaseLost)
	require.Empty(t, applied(t, db), "rolled back")
}

func TestOneGooseIsForOneProvider(t *testing.T) {
	t.Parallel()
	l := wllocktest.New(t)
	g := &Goose{Locker: l, Name: "migrations", Key: "data.db"}
	require.NoError(t, l.Do(t.Context(), "migrations", "data.db", func(ctx context.Context) error {
		require.NoError(t, g.Lock(ctx, nil))
		require.ErrorContains(t, g.Lock(ctx, nil), "want a Goose for each provider")
		return g.Unlock(ctx, nil)
	}))
}
